"""What intervals and tests of several differences have in common. Knows no arm, task or experiment."""

import math
from collections.abc import Sequence


def student(freedom: float, share: float = 0.975) -> float:
    """Below which value Student's t lies with this probability; unless told, the edge of an interval of 95 %."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(freedom, share))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Probabilities corrected for their number, so that one false find among all is as rare as for one.

    However they depend on each other, as models asked the same questions do. NaN, where there is no spread, is no test:
    it is not counted, and stays.

    Source: Holm, 1979.
    """
    corrected = [math.nan] * len(probabilities)
    known = [place for place, value in enumerate(probabilities) if not math.isnan(value)]
    largest = 0.0
    for number, place in enumerate(sorted(known, key=lambda place: probabilities[place])):
        largest = max(largest, min(1.0, (len(known) - number) * probabilities[place]))
        corrected[place] = largest
    return corrected
