"""Formulas of the notebooks as text: nothing of TeX is left, and what belongs together stays together."""

import pytest

from lib_dlhpc.explore.slides.tex import readable, spoken


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\frac{w + w_{1/2}}{e\,P}", "(w + w_(1/2))/(e P)"),
        (r"\tfrac13 \sqrt{C/2M} + \sqrt 2", "1/3 √(C/2M) + √2"),
        (r"\underbrace{\ell}_{\text{launch}}", "\N{SCRIPT SMALL L} [launch]"),
        (r"\max\Big( \frac{m}{B},\; t_\text{step} \Big)", "max(m/B, t_step)"),
        (r"\max_k a_k \ge \bar{c}", "max_k a_k ≥ c̄"),
        (r"x \leftarrow x - \eta h,\qquad n^* = 2 \lg p", "x ← x - η h; n^∗ = 2 lg p"),
        (r"\qquad + F\&B^{p+1}", "+ F&B^(p+1)"),
        (r"\operatorname{tr}\Sigma / \lVert G \rVert^2", "trΣ / ‖ G ‖^2"),
        (r"\unknown{x}", "unknown x"),
    ],
)
def test_a_formula_becomes_text(tex, text):
    assert readable(tex) == text


def test_only_formulas_of_a_text_change():
    assert spoken("*As* $\\tau$:\n\n$$ \\tau = 1 $$\n\n- `x_y`") == "*As* τ:\n\nτ = 1\n\n- `x_y`"
