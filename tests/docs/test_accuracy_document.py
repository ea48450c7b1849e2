"""The written account of accuracy."""

from __future__ import annotations

import pytest

from tools.accuracy_docs import DOCUMENT, updated


@pytest.mark.slow
def test_accuracy_document_states_today_s_figures() -> None:
    """The committed tables are those that a fresh comparison gives."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert updated(text) == text
