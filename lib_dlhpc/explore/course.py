"""The path through the course: its modules in reading order, what each asks and needs, and the labs that go with it."""

from typing import NamedTuple


class Module(NamedTuple):
    """One module: its notebook, what it is called and asks, how long it takes, and what it builds on."""

    file: str  # in modules/
    number: str
    title: str
    question: str
    minutes: int
    needs: tuple[str, ...] = ()  # numbers of modules
    labs: tuple[str, ...] = ()  # folders in labs/

    @property
    def name(self) -> str:
        """The file's name without its ending: the key of answers kept in a browser."""
        return self.file.removesuffix(".ipynb")

    @property
    def heading(self) -> str:
        """Its number and title, as its deck of slides is called."""
        return f"{self.number} {self.title}"


class Lab(NamedTuple):
    """One lab: its title and how long it takes."""

    title: str
    minutes: int


LABS = {
    "01_data_parallel_step": Lab("Write your own data-parallel step", 50),
    "02_overlap": Lab("Make it overlap", 75),
    "03_large_batch": Lab("Tune the large batch", 50),
    "04_pipeline": Lab("Build the pipeline", 90),
    "05_split_convolution": Lab("Split a convolution", 90),
    "06_fit_the_model": Lab("Fit the model", 90),
    "07_repair_the_input": Lab("Repair the input", 90),
    "08_survive": Lab("Survive", 75),
    "09_predict_your_cluster": Lab("Predict your cluster", 90),
    "10_race_the_planner": Lab("Race the planner", 75),
    "11_serve_the_model": Lab("Serve the model", 90),
    "12_lay_out_a_language_model": Lab("Lay out a language model", 100),
    "13_read_a_trace": Lab("Read a trace", 100),
    "14_fuse_attention": Lab("Keep the scores on the chip", 100),
    "15_size_and_fit": Lab("Size and fit a model", 75),
}
# Folders in explore/, as records name modules, and the modules' numbers.
RECORDED = {
    "one_step": "01",
    "data_parallel": "02",
    "allreduce": "03",
    "model_parallel": "04",
    "hybrid_parallel": "05",
    "large_batch": "06",
    "io_bottleneck": "07",
    "memory_wall": "08",
    "failures": "09",
    "energy_planning": "10",
    "traces": "11",
    "language_model": "12",
    "serving": "13",
}
EXPLORER = "00_what_if_explorer.ipynb"
PATH = (
    Module(
        "01_one_step.ipynb",
        "01",
        "One step, measured",
        "Where does one training step's time go on my machine?",
        55,
    ),
    Module("03_allreduce.ipynb", "03", "Allreduce", "Which algorithm, when?", 50),
    Module(
        "02_data_parallel.ipynb",
        "02",
        "Data parallelism",
        "Why are 256 GPUs not 256× as fast?",
        50,
        ("03",),
        ("01_data_parallel_step", "02_overlap"),
    ),
    Module(
        "06_large_batch_lars.ipynb",
        "06",
        "Large batches and LARS",
        "How far can the batch grow?",
        55,
        ("02",),
        ("03_large_batch",),
    ),
    Module(
        "07_io_bottlenecks.ipynb",
        "07",
        "I/O bottlenecks",
        "Why do GPUs wait for files?",
        50,
        ("02",),
        ("07_repair_the_input",),
    ),
    Module(
        "04_model_parallel.ipynb",
        "04",
        "Model parallelism",
        "How do you split one network?",
        60,
        ("03",),
        ("04_pipeline",),
    ),
    Module(
        "08_memory_and_out_of_core.ipynb",
        "08",
        "Memory and out of core",
        "What if it does not fit?",
        50,
        ("02",),
        ("06_fit_the_model", "14_fuse_attention"),
    ),
    Module(
        "05_hybrid_parallel.ipynb",
        "05",
        "Hybrid and spatial parallelism",
        "Which combination, where?",
        65,
        ("02", "04"),
        ("05_split_convolution",),
    ),
    Module(
        "09_state_and_failures.ipynb",
        "09",
        "State and failures",
        "How do you avoid losing a month?",
        65,
        ("02",),
        ("08_survive",),
    ),
    Module(
        "10_energy_and_planning.ipynb",
        "10",
        "Energy and planning",
        "What is the best run for my joules and hours?",
        70,
        ("02", "04", "06"),
        ("10_race_the_planner", "15_size_and_fit"),
    ),
    Module(
        "11_traces_and_waits.ipynb",
        "11",
        "Traces and waits",
        "Who waits for whom?",
        50,
        ("02",),
        ("09_predict_your_cluster", "13_read_a_trace"),
    ),
    Module(
        "12_train_a_language_model.ipynb",
        "12",
        "Training a large language model",
        "How do 16,000 GPUs train one network?",
        60,
        ("04", "05", "08"),
        ("12_lay_out_a_language_model",),
    ),
    Module(
        "13_serving.ipynb",
        "13",
        "Serving",
        "What does an answer cost?",
        70,
        ("01", "04", "08"),
        ("11_serve_the_model",),
    ),
)


def place(file: str) -> tuple[Module | None, Module | None, Module | None]:
    """Return the module before, the module of this file, and the one after; None where there is none."""
    files = [module.file for module in PATH]
    if file not in files:
        return None, None, None
    at = files.index(file)
    before = PATH[at - 1] if at else None
    return before, PATH[at], PATH[at + 1] if at + 1 < len(PATH) else None


def title_of(recorded: str) -> str:
    """Return what a module or a lab is called in grade files: module 02 data parallel, lab 01 data parallel step."""
    if recorded in LABS:
        return f"lab {recorded}".replace("_", " ")
    return " ".join(filter(None, ("module", RECORDED.get(recorded), recorded.replace("_", " "))))
