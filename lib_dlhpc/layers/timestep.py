"""Timestep: the noise level that comes with a sample of a diffusion model, as sines and cosines."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Timestep(Kind):
    """The step t of the diffusion as cos and sin of t at `features` / 2 frequencies (Ho et al. 2020, appendix B).

    t comes with the sample, beside its pixels; not trained here.
    """

    backward_reads = frozenset()
    lookup = True

    @staticmethod
    def describe(site: Site, features: int = 256) -> Counts:
        """Return the counts; the output is one row of features."""
        if features % 2:
            raise SpecError(f"{site.name}: features = {features} must be even: sines and cosines.")
        return Counts((features,), attributes={"features": features})
