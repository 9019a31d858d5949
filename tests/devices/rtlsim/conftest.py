"""Libraries of simulated hardware are kept from run to run, in the cache that the tests of the RTL have."""

from tests.rtl.conftest import _cache, _cache_of_fixtures, _libraries  # noqa: F401
