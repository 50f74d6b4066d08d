"""Model folders: what is loaded is what was saved, nothing is half-written, and damage is noticed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.errors import GraphError, InputError
from fleetgp.files import ResumableCache
from fleetgp.io import read_edges
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from tests.conftest import paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def trained(graph: object = "path", normalize: bool = True, kernel: str = "se") -> Model:
    shards = [(x, y + 290.0 if normalize else y) for x, y in paper_shards(120, 3)]
    fleet = fg.Fleet(shards, graph, normalize=normalize, kernel=kernel)
    fleet.train("dec-gapx-gp", theta0=None if normalize else (1, 0.4, 1, 0.2), tol=1e-3)
    return Model(fleet, ("Ada", "Bo  B", "[Cy] ü"), ("lon", "lat"), "sst")


@cache
def usual() -> Model:
    return trained()


@pytest.mark.parametrize("graph", ["path", [[[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 1, 0]]]])
@pytest.mark.parametrize(("normalize", "kernel"), [(True, "se"), (False, "matern32")])
def test_a_loaded_model_predicts_to_the_last_bit(tmp_path: Path, graph: object, normalize: bool, kernel: str) -> None:
    sequence = [np.array(g) for g in graph] if isinstance(graph, list) else graph
    model = trained(sequence, normalize, kernel)
    folder = save_model(model, tmp_path / "deep" / "model")
    again = load_model(folder)
    queries = np.random.default_rng(0).uniform(0, 2, (7, 2))
    for method in ("dec-summary", "dec-nn-grbcm", "npae", "dec-rbcm"):
        old, new = model.fleet.predict(queries, method), again.fleet.predict(queries, method)
        assert np.array_equal(old.means, new.means)
        assert np.array_equal(old.variances, new.variances)
        assert old.ledger.as_dict() == new.ledger.as_dict()
    assert (again.agents, again.inputs, again.target) == (model.agents, model.inputs, model.target)
    old_fit, new_fit = model.fleet.last_fit, again.fleet.last_fit
    assert old_fit is not None
    assert new_fit is not None
    for name in ("method", "status", "rounds", "residual", "nll", "scaling", "engine", "disagreement"):
        assert getattr(old_fit, name) == getattr(new_fit, name), name
    for name in ("thetas", "history", "jitter", "rho"):
        assert np.array_equal(getattr(old_fit, name), getattr(new_fit, name)), name
    assert [s.rounds for s in old_fit.starts] == [s.rounds for s in new_fit.starts]
    assert old_fit.ledger.as_dict() == new_fit.ledger.as_dict()
    assert old_fit.ledger.sent_by(1) == new_fit.ledger.sent_by(1)


def test_a_diverged_training_can_be_kept_with_the_theta_that_was_given(tmp_path: Path) -> None:
    """Estimates that are no numbers are no reason to lose the model."""
    fleet = fg.Fleet(paper_shards(120, 3), theta=fg.PAPER_THETA, kernel="se", normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="diverged"):
        fit = fleet.train("apx-gp", theta0=fg.PAPER_THETA0, rounds=400, rho=0.01, lipschitz=0.01)
    assert fit.status == "diverged"
    assert np.isnan(fit.disagreement)
    again = load_model(save_model(Model(fleet, ("a", "b", "c"), ("u", "v"), "w"), tmp_path / "model"))
    assert again.fleet.last_fit is not None
    assert again.fleet.last_fit.status == "diverged"
    assert again.fleet.theta is not None
    assert again.fleet.theta.tolist() == list(fg.PAPER_THETA)


def test_people_can_read_it_and_nothing_in_it_can_run(tmp_path: Path) -> None:
    folder = save_model(usual(), tmp_path / "model")
    text = (folder / "model.json").read_text(encoding="utf-8")
    facts = json.loads(text)
    assert '[ "Ada", "Bo  B" ]' in text
    assert facts["version"] == 1
    assert set(facts["hyperparameters"]) == {"l_lon", "l_lat", "sigma_f", "sigma_eps"}
    assert facts["training"]["sent"]["hyperparameters"]["scalars"] > 0
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert names == [
        "agents/0000.safetensors",
        "agents/0001.safetensors",
        "agents/0002.safetensors",
        "ledger.json",
        "model.json",
        "training.safetensors",
    ]
    assert not list(tmp_path.glob(".model*")), "nothing half-written is left"


def test_an_existing_folder_is_kept_unless_asked_and_never_if_it_is_no_model(tmp_path: Path) -> None:
    model = usual()
    folder = save_model(model, tmp_path / "model")
    before = (folder / "model.json").read_bytes()
    with pytest.raises(InputError, match="exists: choose another name, or overwrite"):
        save_model(model, folder)
    assert (folder / "model.json").read_bytes() == before
    save_model(model, folder, overwrite=True)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(InputError, match="holds no model"):
        save_model(model, other, overwrite=True)
    assert (other / "thesis.tex").read_text(encoding="utf-8") == "years of work"
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="this is a file"):
        save_model(model, tmp_path / "file")


def test_a_failed_write_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = usual()
    folder = save_model(model, tmp_path / "model")
    monkeypatch.setattr("fleetgp.storage.folder.save_arrays", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_model(model, folder, overwrite=True)
    assert load_model(folder).agents == model.agents
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_interrupted_overwrite_leaves_one_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = usual()
    folder = save_model(model, tmp_path / "model")
    rename = Path.rename
    for at in (1, 2):
        calls: list[Path] = []

        def interrupted(self: Path, target: Path, at: int = at, calls: list[Path] = calls) -> Path:
            calls.append(self)
            if len(calls) == at:
                raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_model(model, folder, overwrite=True)
        monkeypatch.setattr(Path, "rename", rename)
        assert load_model(folder).agents == model.agents
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
    save_model(model, folder, overwrite=True)


def test_a_start_that_diverged_does_not_spoil_the_model(tmp_path: Path) -> None:
    model = trained()
    fit = model.fleet.last_fit
    assert fit is not None
    lost = replace(fit.starts[0], nll=float("inf"), status="diverged")
    model.fleet.last_fit = replace(fit, starts=(*fit.starts, lost), residual=float("inf"))
    again = load_model(save_model(model, tmp_path / "model")).fleet.last_fit
    assert again is not None
    assert again.starts[-1].nll == again.residual == float("inf")


def flip(path: Path) -> None:
    """Another last bit."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "model.json").unlink(), "there is no model.json"),
        (lambda f: (f / "model.json").write_text("{", encoding="utf-8"), "damaged"),
        (lambda f: (f / "model.json").write_text("[]", encoding="utf-8"), "does not describe"),
        (
            lambda f: (f / "model.json").write_text('{"format": "fleetgp-model", "version": 99}', encoding="utf-8"),
            "a format up to 5.*pip install --upgrade fleetgp",
        ),
        (
            lambda f: (f / "model.json").write_text('{"format": "fleetgp-model", "version": 1}', encoding="utf-8"),
            "damaged: KeyError",
        ),
        (lambda f: (f / "agents" / "0001.safetensors").unlink(), "damaged: FileNotFoundError"),
        (lambda f: (f / "agents" / "0001.safetensors").write_bytes(b"x"), "SHA-256 differs"),
        (lambda f: flip(f / "agents" / "0001.safetensors"), "SHA-256 differs"),
        (lambda f: flip(f / "training.safetensors"), "SHA-256 differs"),
        (lambda f: (f / "training.safetensors").write_bytes(b""), "SHA-256 differs"),
    ],
)
def test_damage_is_one_clear_error(tmp_path: Path, damage: object, said: str) -> None:
    folder = save_model(usual(), tmp_path / "model")
    damage(folder)  # type: ignore[operator]
    with pytest.raises(InputError, match=said):
        load_model(folder)


# ---- folders that may come from anywhere ---------------------------------------------------------------------


def edited(folder: Path, *keys: Any) -> None:
    """model.json with another value: the last of keys, at the place that the others name."""
    path = folder / "model.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    *way, last, value = keys
    place = facts
    for key in way:
        place = place[key]
    place[last] = value
    path.write_text(json.dumps(facts), encoding="utf-8")


def tensors(folder: Path, header: bytes, content: bytes = b"") -> None:
    """An agent's file with a head of our own, and the right digest."""
    data = len(header).to_bytes(8, "little") + header + content
    (folder / "agents" / "0000.safetensors").write_bytes(data)
    edited(folder, "agents", 0, "sha256", hashlib.sha256(data).hexdigest())


def linked(folder: Path, target: str) -> None:
    path = folder / "agents" / "0000.safetensors"
    path.unlink()
    path.symlink_to(target)


def sparse(folder: Path) -> None:
    with (folder / "agents" / "0000.safetensors").open("r+b") as file:
        file.truncate(1 << 42)


HUGE = b'{"inputs":{"dtype":"F64","shape":[%d,2],"data_offsets":[0,%d]},"observations":{"dtype":"F64","shape":[%d],'


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (lambda f: linked(f, "/dev/zero"), "a link that leads out of the folder"),
        (lambda f: linked(f, "../../elsewhere"), "a link that leads out of the folder"),
        (lambda f: linked(f, "0000.safetensors"), "damaged"),
        (sparse, "more than the memory of this machine"),
        (lambda f: tensors(f, b"{" * 50_000), "it is no safetensors file"),
        (lambda f: tensors(f, b"[" * 50_000), "it is no safetensors file"),
        (lambda f: tensors(f, b"[]"), "it is no safetensors file"),
        (lambda f: tensors(f, b"{}"), "expected the arrays inputs, observations, got none"),
        (lambda f: tensors(f, b'{"inputs": null, "observations": {}}'), "it is no safetensors file"),
        (
            lambda f: tensors(f, HUGE % (10**15, 10**16, 10**15) + b'"data_offsets":[0,8]}}'),
            "it is no safetensors file",
        ),
        (
            lambda f: tensors(f, HUGE % (40, 640, 40) + b'"data_offsets":[640,960]}}', b"x" * 100),
            "it is no safetensors file",
        ),
        (
            lambda f: tensors(f, HUGE % (40, 64, 40) + b'"data_offsets":[640,960]}}', b"x" * 960),
            "it is no safetensors file",
        ),
        (lambda f: (f / "agents" / "0000.safetensors").write_bytes(b"\xff" * 100), "SHA-256 differs"),
        (lambda f: (f / "model.json").write_text("[" * 100_000, encoding="utf-8"), "nested too deeply"),
        (lambda f: (f / "model.json").write_text(f'{{"version": {"9" * 5000}}}', encoding="utf-8"), "damaged"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe{"), "damaged"),
        (lambda f: (f / "ledger.json").write_text("[" * 100_000, encoding="utf-8"), "nested too deeply"),
        (lambda f: (f / "ledger.json").write_text("null", encoding="utf-8"), "damaged"),
        (lambda f: edited(f, "version", "1"), "a whole number as version, got '1'"),
        (lambda f: edited(f, "version", None), "a whole number as version, got None"),
        (lambda f: edited(f, "normalize", "yes"), "normalize: expected bool, got 'yes'"),
        (lambda f: edited(f, "agents", 0, "observations", 10**18), "expected numbers of shape"),
        (lambda f: edited(f, "agents", 0, "observations", True), "expected int, got True"),
        (lambda f: edited(f, "agents", 0, "sha256", None), "SHA-256 differs"),
        (lambda f: edited(f, "agents", 1, "name", "Ada"), "expected different names|damaged"),
        (lambda f: edited(f, "hyperparameters", "sigma_f", None), "theta has missing values"),
        (lambda f: edited(f, "hyperparameters", "sigma_f", -1), "got sigma_f = -1"),
        (lambda f: edited(f, "training", "scaling", "scale", 0), "expected a number and a positive number"),
        (lambda f: edited(f, "training", "status", "great"), "unknown status 'great'"),
        (lambda f: edited(f, "training", "starts", 0, "surprise", 1), "damaged"),
        *((lambda f, key=key: edited(f, key, None), "damaged|null|None") for key in (
            "agents", "inputs", "target", "kernel", "normalize", "seed", "hyperparameters", "note", "graph", "training",
        )),
    ],
)  # fmt: skip
def test_hostile_folders_are_one_clear_error(tmp_path: Path, attack: Any, said: str) -> None:
    folder = save_model(usual(), tmp_path / "model")
    attack(folder)
    with pytest.raises(InputError, match=said):
        load_model(folder)


def test_the_order_of_names_in_the_description_does_not_matter(tmp_path: Path) -> None:
    """Programs that sort keys put sigma_eps before sigma_f."""
    fleet = fg.Fleet(paper_shards(60, 2), theta=fg.PAPER_THETA, kernel="se", normalize=False)
    folder = save_model(Model(fleet, ("a", "b"), ("lon", "lat"), "sst"), tmp_path / "model")
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")), sort_keys=True), encoding="utf-8")
    assert load_model(folder).theta == {"l_lon": 1.2, "l_lat": 0.3, "sigma_f": 1.3, "sigma_eps": 0.1}


# ---- names ---------------------------------------------------------------------------------------------------


def test_a_model_takes_data_frames_by_name_before_and_after_it_is_saved(tmp_path: Path) -> None:
    model = usual()
    queries = np.random.default_rng(0).uniform(0, 2, (7, 2))
    expected = model.fleet.predict(queries, "rbcm").mean
    turned = pd.DataFrame({"lat": queries[:, 1], "lon": queries[:, 0]})
    for fleet in (model.fleet, load_model(save_model(model, tmp_path / "model")).fleet):
        assert fleet.inputs == ("lon", "lat")
        assert np.array_equal(fleet.predict(turned, "rbcm").mean, expected)


@pytest.mark.parametrize(
    ("agents", "inputs", "target", "said"),
    [
        (["a"], ["x", "y"], "t", "agents: expected 2 names, as many as the fleet has, got 1"),
        (["a", "b"], ["x"], "t", "inputs: expected 2 names"),
        (["a", "a"], ["x", "y"], "t", "agents: expected different names"),
        (["a", "b"], "xy", "t", "inputs: expected a list of names, got 'xy'"),
        (["a", "b"], ["x", 2], "t", "inputs: expected a list of names"),
        (["a", "b"], ["x", "y"], 3, "target: expected a name, got 3"),
    ],
)
def test_names_that_do_not_fit_are_refused_when_the_model_is_made(
    agents: Any, inputs: Any, target: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Model(fg.Fleet(paper_shards(60, 2), kernel="se", normalize=False), agents, inputs, target)


def test_a_model_cannot_rename_the_inputs_of_a_fleet() -> None:
    fleet = fg.Fleet(paper_shards(60, 2), inputs=["lon", "lat"], kernel="se", normalize=False)
    with pytest.raises(InputError, match=r"expected lon, lat, as the fleet has them, got lat, lon"):
        Model(fleet, ("a", "b"), ("lat", "lon"), "sst")


# ---- edge lists --------------------------------------------------------------------------------------------


def test_edges_by_name_with_any_separator(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("# the fleet\nAda Bo\nBo,Cy Dee\nCy Dee\tAda  # a cable\n\n", encoding="utf-8")
    graph = read_edges(path, ["Ada", "Bo", "Cy Dee"])
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a b\nb d\n", "line 2: agent 'd' is not in the data, which have a, b, c"),
        ("a b\n", "no edge for c of the data"),
        ("a b c\n", "line 1: expected two agents"),
        ("a b\nc c\n", "line 2: agent 'c' has an edge to itself"),
    ],
)
def test_wrong_edges_are_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "links.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_edges(path, ["a", "b", "c"])


def test_parts_that_cannot_reach_each_other_are_named(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("a b\nc d\n", encoding="utf-8")
    with pytest.raises(GraphError, match=r"its parts are a, b; c, d"):
        read_edges(path, ["a", "b", "c", "d"])


# ---- finished pieces ---------------------------------------------------------------------------------------


def test_pieces_belong_to_their_settings_and_survive_damage(tmp_path: Path) -> None:
    kept = ResumableCache(tmp_path / "k", {"theta": [0.1, 0.2]})
    kept.put("a", [1.0, 2.5e-300])
    assert ResumableCache(tmp_path / "k", {"theta": [0.1, 0.2]}).get("a") == [1.0, 2.5e-300]
    assert ResumableCache(tmp_path / "k", {"theta": [0.1, 0.3]}).get("a") is None
    (kept.folder / "a.json").write_text("[1.0, 2.", encoding="utf-8")
    assert kept.get("a") is None
    kept.clear()
    assert not (tmp_path / "k").exists()


def test_a_fleet_with_names_is_saved_as_it_is_called(tmp_path: Path) -> None:
    table = pd.DataFrame({"lon": [0.0, 1.0, 2.0, 3.0], "sst": [1.0, 2.0, 0.0, 1.0], "boat": ["bo", "ada"] * 2})
    units = {"sst": "degC"}
    fleet = fg.Fleet.from_frame(
        table,
        inputs=["lon"],
        target="sst",
        agent="boat",
        units=units,
        theta=[1.0, 1.0, 0.1],
        kernel="se",
        normalize=False,
    )
    again = fg.load_model(fg.save_model(fleet, tmp_path / "m"))
    assert (again.agents, again.inputs, again.target) == (("bo", "ada"), ("lon",), "sst")
    assert again.fleet.units == units
    assert again.fleet.predict([[0.5]]).mean.tolist() == fleet.predict([[0.5]]).mean.tolist()


@pytest.mark.parametrize("inputs", [None, ["lon"]])
def test_a_fleet_without_names_is_not_saved(tmp_path: Path, inputs: list[str] | None) -> None:
    fleet = fg.Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1], inputs=inputs, kernel="se", normalize=False)
    with pytest.raises(fg.InputError, match=r"expected names of its agents.*fg\.Model\(fleet, agents, inputs, target"):
        fg.save_model(fleet, tmp_path / "m")
    assert not (tmp_path / "m").exists()
