"""What clients may not do through the sandbox proxy."""

import http.client
import unittest

from harness import SMALL

INTERNAL = ("/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade")


class Proxy(unittest.TestCase):
    node = None

    def setUp(self):
        self.addCleanup(self.node.space, "kill", "--all")

    def post(self, sandbox, target, token):
        connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=60)
        try:
            headers = {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "Content-Type": "application/json"}
            if token:
                headers["X-Access-Token"] = token
            connection.request("POST", target, body="{}", headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def test_two_hundred_connections_at_once(self):
        sandbox = self.node.create(*SMALL)
        connections = [http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=60) for _ in range(200)]
        try:
            for round_number in range(2):  # the second one over the same connections
                for connection in connections:
                    connection.request("GET", "/health", headers={
                        "E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983"})
                for connection in connections:
                    answer = connection.getresponse()
                    self.assertEqual((answer.status, answer.read()), (204, b""), round_number)
            self.assertEqual(self.node.sh(sandbox, "echo alive"), "alive")
        finally:
            for connection in connections:
                connection.close()

    def test_what_only_the_host_may_ask_is_closed(self):
        sandbox = self.node.create(*SMALL)
        token = self.node.api("GET", f"/sandboxes/{sandbox}")[2]["envdAccessToken"]
        for path in (*INTERNAL, "/poweroff"):
            name = path[1:]
            for target in (path, f"/%{ord(name[0]):02x}{name[1:]}", f"//{name}", f"/./{name}", f"/x/../{name}",
                           f"{path}/", f"{path}?x=1"):
                for secret in (None, token):
                    # 404 of the proxy, or what the agent says to anybody's wrong path.
                    self.assertIn(self.post(sandbox, target, secret), (401, 404), target)
        self.assertEqual(self.node.sh(sandbox, "echo alive"), "alive")
