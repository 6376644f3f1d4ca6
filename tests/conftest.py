"""What holds for every test: a busy machine is no reason to fail."""

from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the claim.
settings.register_profile("millstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millstream")
