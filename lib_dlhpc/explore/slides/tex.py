"""Formulas in TeX as text that can be read aloud: for speaker notes, which show no formulas."""

import re

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.DOTALL)
FRACTIONS = {r"\frac", r"\tfrac"}
PLAIN = {r"\text", r"\operatorname"}
SILENT = {r"\left", r"\right", r"\big", r"\Big", r"\textstyle", r"\!"}
NAMES = ("alpha", "beta", "gamma", "eta", "lambda", "pi", "sigma", "tau", "phi", "varphi", "ell")
GREEK = dict(zip((*NAMES, "Lambda", "Sigma", "Phi"), "αβγηλπστφφℓΛΣΦ", strict=True))
SIGNS = GREEK | {
    "approx": "≈",
    "cdot": "·",
    "Delta": "Δ",
    "dots": "…",
    "ge": "≥",
    "int": "∫",
    "le": "≤",
    "leftarrow": "←",
    "Leftrightarrow": " ⇔ ",
    "ll": "≪",
    "lVert": "‖",
    "propto": "∝",
    "qquad": "; ",
    "quad": "; ",
    "Rightarrow": " ⇒ ",
    "rVert": "‖",
    "sum": "Σ",
    "times": "×",
    "varepsilon": "ε",
}


def spoken(text: str) -> str:
    """Return Markdown with each formula, $...$ or $$...$$, as readable text."""
    return MATH.sub(lambda found: readable(found[1] or found[2]), text)


def readable(tex: str) -> str:
    r"""Return a formula in TeX as text: \frac{w}{e\,P} is w/(e P), a brace below is its label in brackets.

    A command that is not known stands by its name, such as max.
    """
    text = re.sub(r"\s+", " ", _group(TOKEN.findall(tex)[::-1]))
    text = re.sub(r"(?<=[(\[]) | (?=[)\],.;_^])|(?<=max|min) (?=\()", "", text)
    return re.sub(r"[,;]?(; ?)+", "; ", text).strip(" ;")


def _group(rest: list[str]) -> str:
    """Return the text up to the closing brace, taking its tokens off the end of `rest`."""
    text = ""
    while rest and (token := rest.pop()) != "}":
        text += _one(token, rest)
    return text


def _one(token: str, rest: list[str]) -> str:
    """Return the text of a token and of the arguments that follow it."""
    if token == "{":
        return _group(rest)
    if token in FRACTIONS:
        top = _enclosed(_argument(rest))
        return f"{top}/{_enclosed(_argument(rest))}"
    if token == r"\underbrace":
        braced = _argument(rest)
        return f"{braced} [{_argument(rest)}]" if rest and rest.pop() == "_" else braced
    if token in ("^", "_"):
        return token + _enclosed(_argument(rest))
    if token == r"\sqrt":
        root = _argument(rest)
        return f"√{root}" if len(root) == 1 else f"√({root})"
    if token == r"\bar":
        return _argument(rest) + "\N{COMBINING MACRON}"
    if token in PLAIN:
        return _argument(rest)
    if token in SILENT:
        return ""
    return _sign(token)


def _sign(token: str) -> str:
    """Return a character, or what a command without arguments stands for."""
    name = token[1:]
    if token == "*":
        return "∗"  # Markdown would take it for a mark of emphasis
    if not token.startswith("\\"):
        return token
    if not name.isalpha():
        return "&" if name == "&" else " "
    return SIGNS.get(name, f" {name} ")


def _argument(rest: list[str]) -> str:
    """Return the argument that follows: a group, or one token."""
    while rest and rest[-1].isspace():
        rest.pop()
    return _one(rest.pop(), rest) if rest else ""


def _enclosed(text: str) -> str:
    """Return the text, in parentheses where it is more than one word or number."""
    text = text.strip()
    return text if re.fullmatch(r"[\w.'\u0304]+|\S", text) else f"({text})"
