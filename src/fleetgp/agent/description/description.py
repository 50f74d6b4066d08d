"""A fleet as its file describes it: the same for all its agents."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.description.certificates import Credentials
from fleetgp.agent.description.parts import KNOWN, FleetPart
from fleetgp.arrays import Array
from fleetgp.data.coordinates import coordinate_rule
from fleetgp.errors import InputError, listed, shortened
from fleetgp.fleet.privacy import refuse_private
from fleetgp.gp.kernels import Kernel
from fleetgp.graph import Graph
from fleetgp.prediction import PredictionMethod, PredictionOptions
from fleetgp.training import TrainingMethod, TrainingOptions
from fleetgp.training.known import Known

#: Raised when agents of an older FleetGP cannot work with newer ones any more. It is part of the digest, so that they
#: refuse each other. 2: an agenda's record is JSON. 3: agendas and sums travel along a tree, in frames of version 2.
#: 4: a model has its kernel and its calibration with it. 5: an item says that its last training failed.
PROTOCOL = 5
#: The language of keys and hellos. Agents that do not share it do not hear each other, so it stays as it is where
#: possible: whoever has another description or another protocol is to be heard, refused and named, not passed over.
LANGUAGE = 1
#: The sections of the file with settings that agents must have in common, and settings too long for a message.
SECTIONS, LONG = ("training", "prediction", "timeouts"), ("agents", "edges")


class Description:
    """A fleet as its file describes it, checked."""

    def __init__(self, file: FleetPart, folder: Path, graph: Graph) -> None:
        self._file, self.folder, self.graph = file, folder, graph
        self.name, self.agents = file.name, tuple(file.agent)
        self.names = tuple(agent.name for agent in file.agent)
        self.inputs, self.target = tuple(file.inputs), file.target
        self.kernels, self.normalize, self.seed = file.kernels, file.normalize, file.seed
        self.noise_model, self.deviation = file.noise_model, file.deviation
        self.mean, self.coordinates = file.mean, coordinate_rule(file.coordinates, self.inputs)
        self.checkpoint_rounds = file.checkpoint_rounds
        self.training, self.timeouts, self.private = file.training, file.timeouts, file.private
        self.prediction = file.prediction.model_copy(update={"method": file.predictor})

    @property
    def dimension(self) -> int:
        return len(self.inputs)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the hyperparameters: those of all kernels that it may choose from."""
        return self.kernels[0].names(self.inputs)

    def kernel_of(self, name: str) -> Kernel:
        """The one that a model was trained with; of none, or one of another name, the first."""
        return next((kernel for kernel in self.kernels if kernel.name == name), self.kernels[0])

    def refuse_private(self, method: TrainingMethod | PredictionMethod) -> None:
        """One clear error for a method that would reveal rows where these are private. Rows come one by one here, so
        that moments are refused however many there are.
        """
        refuse_private(method, self.private, self.kernels[0], self.prediction.engine, rows=0)

    @property
    def state(self) -> Path:
        return self.folder / self._file.state

    @property
    def secured(self) -> bool:
        return self._file.tls is not None

    @property
    def run(self) -> int:
        """The number in the keys of all messages. It is the same for all fleets and versions: see `LANGUAGE`."""
        return LANGUAGE

    @property
    def digest(self) -> str:
        """A number for all that the agents must have in common: everything but files, folders and ports of one's own.

        64 bits of SHA-256, then 12 bits for each setting, by which `differences` names those that differ.
        """
        return _hex(self._common, 16) + "".join(_hex(value, 3) for _, value in self._settings)

    def differences(self, digest: str, place: str = "here") -> str:
        """Name the settings in which another description, of which this is the digest, differs, for a message.

        place: what to call this description.
        """
        own, settings = self.digest, self._settings
        if len(digest) != len(own):
            return "it holds another fleet description, or is of another version of FleetGP"
        parts = range(16, len(own), 3)
        differ = [
            name if name in LONG else f"{name} ({'not set' if value is None else shortened(value)} {place})"
            for (name, value), at in zip(settings, parts, strict=True)
            if own[at : at + 3] != digest[at : at + 3]
        ]
        return f"it holds another fleet description: different {', '.join(differ) or 'settings'}"

    @property
    def _settings(self) -> list[tuple[str, Any]]:
        """Every setting that the agents must have in common, by its name, in an order that is the same everywhere."""
        settings: dict[str, Any] = {}
        for name, value in self._common.items():
            if name in SECTIONS:
                settings |= {f"[{name}] {key}": one for key, one in value.items()}
            else:
                settings[name] = value
        return sorted(settings.items())

    @property
    def _common(self) -> dict[str, Any]:
        common = self._file.model_dump(exclude={"agent", "tls", "state", "checkpoint_rounds"})
        common["agents"] = [(agent.name, agent.endpoint) for agent in self.agents]
        common["edges"] = self.graph.edges.tolist()
        common["secured"] = self.secured
        common["protocol"] = PROTOCOL
        return common

    @property
    def model(self) -> str:
        """What a checkpoint's numbers mean: with another, they are of no use."""
        other = "" if self.mean == "zero" else f", mean {self.mean}"
        if self.coordinates.name != "as-given":
            other += f", coordinates {self.coordinates.name}"
        noises = {"deviation": self.deviation, "noise": self._file.noise, "robust": self._file.robust or None}
        other += "".join(f", {name} {value}" for name, value in noises.items() if value is not None)
        return f"{self.name}: {self.target} over {', '.join(self.inputs)}, kernel {self._file.kernel}{other}"

    def id_of(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"there is no agent {shortened(name)} in this fleet: choose one of {listed(self.names)}")
        return self.names.index(name)

    def credentials(self, name: str) -> Credentials | None:
        """The TLS files of an agent, or of the operator; None for a fleet on this machine that has none."""
        tls = self._file.tls
        if tls is None:
            return None
        if tls.folder is not None:
            return Credentials.of(self.folder / tls.folder, name)
        files = (tls.authority, tls.certificate, tls.key)
        return Credentials(*(self.folder / str(file).replace("{name}", name) for file in files)).checked()

    @property
    def tls_folder(self) -> Path | None:
        tls = self._file.tls
        return None if tls is None or tls.folder is None else self.folder / tls.folder

    def data_of(self, agent: int) -> Path:
        return self.folder / self.agents[agent].data

    def starts(self) -> Array | None:
        """theta0 of the file, (S, P) in logarithms, or None."""
        theta0 = self.training.theta0
        return None if theta0 is None else np.log(np.atleast_2d(np.array(theta0, dtype=float)))

    def training_options(self, starts: Array | None) -> TrainingOptions:
        """The file's options, for whichever method trains."""
        apart = {"method", "theta0", *KNOWN, "calibrate", "again_with_members", "again_after"}
        given = self.training.model_dump(exclude=apart)
        known = Known.of(self.parameters, **self.training.model_dump(include=set(KNOWN)))
        model: dict[str, Any] = {"normalize": self.normalize, "mean": self.mean, "coordinates": self.coordinates}
        return TrainingOptions(starts=starts, seed=self.seed, known=known, **model, **given)

    def prediction_options(self) -> PredictionOptions:
        return PredictionOptions(seed=self.seed, **self.prediction.model_dump(exclude={"method"}))


def _hex(facts: Any, digits: int) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:digits]
