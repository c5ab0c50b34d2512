"""What is printed as JSON is JSON, whatever columns a crawl has."""

import datetime
import decimal
import json
import math

import pytest

from datamask_pipeline.cli.answers import print_answer


def test_values_of_any_column_are_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "at": datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC),
        "day": datetime.date(2024, 3, 1),
        "price": decimal.Decimal("1.50"),
        "raw": b"\x00\xff",
        "took": datetime.timedelta(seconds=90),
        "scores": [1.5, math.inf, math.nan, None, True, 7],
    }
    print_answer({"source": row}, [], as_json=True)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["source"] == {
        "at": "2024-03-01T12:00:00+00:00",
        "day": "2024-03-01",
        "price": "1.50",
        "raw": "00ff",
        "took": "0:01:30",
        "scores": [1.5, "inf", "nan", None, True, 7],
    }
