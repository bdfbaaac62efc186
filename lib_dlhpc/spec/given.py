"""The argument of every verb: an Experiment, not the name of one."""

from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


def check_given(experiment: Any) -> None:
    """Raise SpecError, which says how to read one, for what is no Experiment."""
    if isinstance(experiment, Experiment):
        return
    name = experiment if isinstance(experiment, str) else "goyal-2017"
    raise SpecError(f'expected an Experiment, such as load("{name}"), not {experiment!r:.60}.')
