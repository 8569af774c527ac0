// What the host tells the agent by POST /init, and what follows from it. One per agent, on its one
// thread.
#pragma once

#include <map>
#include <string>

namespace space::agent {

struct Settings {
  std::string access_token;  // empty: everything is open
  // Sandbox-wide variables: those of template and create, E2B_SANDBOX_ID and E2B_TEMPLATE_ID among
  // them. Shown by GET /envs, so no secrets.
  std::map<std::string, std::string> environment;
  std::string default_user = "root";
  std::string default_workdir;  // empty: the user's home
};

}  // namespace space::agent
