"""A signature and a verdict stand for a data set, and for it alone."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from in_toto_attestation.v1.statement import Statement
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.hashed import sha256_file


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def prove(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["audit", "prove", *map(str, arguments)])


@pytest.fixture
def signed(licensed: Store, tmp_path: Path) -> tuple[Path, Path]:
    """A signed data set, and the public key."""
    private, public = write_keys(tmp_path, "mine")
    folder = tmp_path / "mask"
    licences = ["--license", "odc-by", "--source-license", "odc-by"]
    options = [
        "--arm",
        "datamask",
        "--to",
        str(folder),
        "--sign",
        str(private),
        "-s",
        f"store={licensed.root}",
    ]
    result = CliRunner().invoke(app, ["release", "first", *licences, *options])
    assert result.exit_code == 0, result.output
    return folder, public


def test_a_signature_is_checked_and_one_changed_byte_refused(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, public = signed
    assert prove(folder, "--public-key", public).exit_code == 0
    _, other = write_keys(tmp_path, "other")
    result = prove(folder, "--public-key", other)
    assert result.exit_code == 1
    assert "contradiction: mask.sig: " in result.output
    card = folder / "README.md"
    card.write_bytes(card.read_bytes()[:-1] + b" ")
    result = prove(folder, "--public-key", public, "--json")
    found = json.loads(result.output)
    assert (found["status"], found["unchecked_signature"]) == (1, None)
    assert {each["file"] for each in found["findings"]} == {"README.md", "mask.sig"}
    problem = next(each["problem"] for each in found["findings"] if each["file"] == "mask.sig")
    assert "Hash mismatch for 'README.md'" in problem
    assert hashlib.sha256(card.read_bytes()).hexdigest() in problem
    assert "digest_value" not in problem


@pytest.mark.parametrize("key", ["missing.pem", "no_key.pem"])
def test_a_key_that_cannot_sign_is_refused_before_anything_is_published(
    licensed: Store, tmp_path: Path, key: str
) -> None:
    """Whoever asks for a signature is not left with a data set without one."""
    (tmp_path / "no_key.pem").write_text("no key")
    licences = ["--license", "odc-by", "--source-license", "odc-by"]
    places = ["--to", str(tmp_path / "mask"), "--sign", str(tmp_path / key), "-s", f"store={licensed.root}"]
    result = CliRunner().invoke(app, ["release", "first", "--arm", "datamask", *licences, *places])
    assert result.exit_code == 1
    assert "cannot sign with" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["no_key.pem"]


def test_a_signature_that_was_not_checked_is_told(signed: tuple[Path, Path]) -> None:
    folder, public = signed
    told = prove(folder).output
    assert f"signature {folder}.sig was not checked; --public-key KEY.pub checks it" in told
    assert json.loads(prove(folder, "--json").output) == {
        "status": 0,
        "proved": ["DATAMASK_FILES"],
        "findings": [],
        "unchecked_signature": f"{folder}.sig",
    }
    assert "not checked" not in prove(folder, "--public-key", public).output


def test_a_signature_without_a_key_is_refused(signed: tuple[Path, Path]) -> None:
    """It was passed over, and the proof ended as if it had been checked."""
    folder, _ = signed
    told = prove(folder, "--signature", folder.with_name("other.sig"))
    assert told.exit_code == 1
    assert "--public-key KEY.pub" in str(told.exception)


def test_the_working_directory_has_a_signature_beside_it_too(
    signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, public = signed
    for at, name in ((folder, "."), (folder / "data", "..")):
        monkeypatch.chdir(at)
        told = prove(Path(name))
        assert told.exit_code == 0, told.output
        assert f"signature {folder}.sig was not checked" in told.output
        assert prove(Path(name), "--public-key", public).exit_code == 0
    told = CliRunner().invoke(app, ["audit", "prove", f"file://{folder}/"])
    assert f"signature file://{folder}.sig was not checked" in told.output


def test_a_lost_signature_is_a_contradiction(signed: tuple[Path, Path]) -> None:
    folder, public = signed
    folder.with_name("mask.sig").unlink()
    assert "contradiction: mask.sig: " in prove(folder, "--public-key", public).output


def test_a_verdict_is_an_in_toto_statement_of_these_bytes(signed: tuple[Path, Path], tmp_path: Path) -> None:
    folder, public = signed
    root = json.loads((folder / "manifest.json").read_text())["root"]
    verdict = tmp_path / "verdict.json"
    assert prove(folder, "--root", root, "--public-key", public, "--verdict", verdict).exit_code == 0
    values = json.loads(verdict.read_text())
    assert values["predicate"]["properties"] == ["DATAMASK_FILES", "DATAMASK_ROOT", "DATAMASK_SIGNATURE"]
    statement = Statement([], values["predicateType"], values["predicate"])
    for subject in values["subject"]:
        statement.pb.subject.add(name=subject["name"], digest=subject["digest"])
        assert subject["digest"]["sha256"] == sha256_file(folder / subject["name"])
    statement.validate()
    shard = next((folder / "data").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"2")
    verdict.unlink()
    assert prove(folder, "--verdict", verdict).exit_code == 1
    assert not verdict.exists()


def test_options_of_data_sets_are_refused_for_a_record(licensed: Store) -> None:
    result = prove("first", "--verdict", "verdict.json", "-s", f"store={licensed.root}")
    assert "'first' is no data set" in str(result.exception)
