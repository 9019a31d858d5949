"""Types that a test registers are not there in the next one."""

from tests.plugins.conftest import registry as registry
