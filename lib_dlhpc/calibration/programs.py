"""The programs whose results a calibration fits, by module."""

PROBE, WORKER = "lib_dlhpc.training.probe", "lib_dlhpc.calibration.worker"
STEPS = "lib_dlhpc.training.probe_steps"  # repeated: shows the spread from run to run
