"""What a resume did not have to do again, in words: steps, time and, where steps say what they took, money."""

from __future__ import annotations

from perdure.telemetry.text import counted, duration


def not_repeated(steps: int, *, seconds: float, dollars: float = 0.0, tokens: int = 0) -> str:
    """Such as: 46 steps not repeated, saved 6.4 s and $0.0512."""
    saved = [duration(seconds)]
    if dollars:
        saved.append(money(dollars))
    elif tokens:
        saved.append(counted(tokens, "token"))
    return f"{counted(steps, 'step')} not repeated, saved {' and '.join(saved)}"


def money(dollars: float) -> str:
    """An amount with as many digits as it is worth: $0.0512, $1.82, $130."""
    if dollars < 1:
        return f"${dollars:.4f}"
    return f"${dollars:,.2f}" if dollars < 100 else f"${dollars:,.0f}"  # noqa: PLR2004 - cents of hundreds say little
