// Boost.JSON is header-only until somebody includes this, once per program.
#include <boost/json/src.hpp>
