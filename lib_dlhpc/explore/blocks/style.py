"""How the explorer's page is laid out, and names for controls that the widgets leave unnamed."""

from pathlib import Path

import anywidget

HERE = Path(__file__).parent
PAGE_STYLE = f"<style>{(HERE / 'static' / 'explorer.css').read_text(encoding='utf-8')}</style>"


class Labels(anywidget.AnyWidget):
    """Gives every slider handle and field without a label the name that stands beside it."""

    _esm = HERE / "static" / "labels.js"
