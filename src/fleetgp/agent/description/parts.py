"""The tables of a fleet.toml, field by field. Needs the extra "fleet"."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, create_model, model_validator

from fleetgp.agent.description.certificates import NAME
from fleetgp.consensus.scaling import MeanName
from fleetgp.data.coordinates import CoordinatesName, coordinate_rule
from fleetgp.data.sphere import seen_by
from fleetgp.declarations import Option, options_in
from fleetgp.fleet.privacy import PREDICTOR, predictor_of
from fleetgp.given import check_whole
from fleetgp.gp.choices import Kernels, as_kernels
from fleetgp.gp.composite import with_noise
from fleetgp.io.tables import Missing
from fleetgp.model.noise import NoiseModel
from fleetgp.options import ModelOptions, PredictionOptions, RowOptions, TrainerOptions, default_kernel
from fleetgp.prediction import PREDICTION_METHODS
from fleetgp.training import TRAINING_METHODS

#: The methods that need no server.
TRAINERS = tuple(name for name in TRAINING_METHODS if name.startswith("dec-"))
PREDICTORS = tuple(name for name in PREDICTION_METHODS if name.startswith("dec-"))
#: What [training] says of hyperparameters by their names, a table each.
KNOWN = ("bounds", "priors", "fixed")
#: No training has more starts.
MOST_STARTS = 100

Port = Annotated[int, Field(ge=1, le=65535)]
#: Seconds: nobody waits longer for anything.
LONGEST_WAIT = 86_400.0
Seconds = Annotated[float, Field(ge=0.1, le=LONGEST_WAIT, allow_inf_nan=False)]
#: No count in the file is larger.
MOST = 10**9
Count = Annotated[int, Field(ge=1, le=MOST)]
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(pattern=NAME, max_length=64)]


def _single(target: object) -> object:
    """One target: a running fleet has one model."""
    if isinstance(target, list):
        raise ValueError(
            f"expected one column, got {len(target)}: a running fleet has one target. Fit several together by "
            "`fleetgp fit --target a b`, or describe a fleet for each"
        )
    return target


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AgentPart(_Part):
    """One agent. From data on all but neighbours concerns it alone: the others need not have the same.

    show_rows: whoever may ask it for its status may see its rows, too.
    """

    name: Name
    endpoint: str
    data: Place
    neighbours: list[str] = []
    missing: Missing = RowOptions.missing
    fill: list[float] | None = None
    watch: bool = False
    metrics: Port | None = None
    show_rows: bool = False


def _options(family: type) -> dict[str, Any]:
    """The fields of a table that are the options of a family."""
    return {
        name: (Annotated[Any, PlainValidator(partial(_checked, one))], one.default)
        for name, one in options_in(family).items()
        if one.toml
    }


def _checked(option: Option, value: object) -> Any:
    """Check the value of an option; of a count also that it is no larger than `MOST`."""
    found = option.check(value)
    if option.kind.type is int:
        check_whole(option.name, value, least=1, most=MOST)
    return found


class TrainingTable(_Part):
    """How the fleet is trained, and when again. It also has the `TrainerOptions` of methods without a central node.

    The options are for all methods that this fleet will train with: each takes those that it has.

    bounds, priors, fixed: by the names of hyperparameters, as `Fleet.train` has them; in a bound 0 and inf are open.
    calibrate: after a training, for the method of [prediction]: see `Fleet.calibrate`.
    again_with_members: when agents leave or come.  again_after: when the fleet has this many new rows; 0: on command.
    """

    method: str = "dec-fact-gp"
    theta0: list[float] | list[list[float]] | None = None
    bounds: dict[str, list[float]] = {}
    priors: dict[str, list[float]] = {}
    fixed: dict[str, float] = {}
    calibrate: Literal["no", "rows", "blocks", "both"] = "no"
    again_with_members: bool = True
    again_after: Annotated[int, Field(ge=0, le=10**9)] = 0


class PredictionTable(_Part):
    """How questions are answered. It also has the `PredictionOptions`, for all methods: each takes those it has."""

    method: str = PREDICTOR
    if TYPE_CHECKING:
        consensus: str = PredictionOptions.consensus
        engine: str = PredictionOptions.engine
        neighbours: int = PredictionOptions.neighbours


if TYPE_CHECKING:
    TrainingPart = TrainingTable
    PredictionPart = PredictionTable
else:
    TrainingPart = create_model("TrainingPart", __base__=TrainingTable, **_options(TrainerOptions))
    PredictionPart = create_model("PredictionPart", __base__=PredictionTable, **_options(PredictionOptions))


class TimeoutsPart(_Part):
    """Seconds. connect: to find the others at the start.  round: for a round, the longest local computation included.
    lease: after which a silent link is dead.  ask: in which an asker gets an answer or an error.
    """

    connect: Seconds = 30.0
    round: Seconds = 30.0
    lease: Seconds = 5.0
    ask: Seconds = 60.0


class TlsPart(_Part):
    """The folder that `fleetgp certs` made, or the three files, in which {name} stands for the agent's name."""

    folder: Place | None = None
    authority: Place | None = None
    certificate: Place | None = None
    key: Place | None = None


class FleetPart(_Part):
    """The whole file. deviation: the column of the known standard deviations of the target.

    noise, robust, private: as of a `Fleet`.
    """

    name: Name
    inputs: Annotated[list[str], Field(min_length=1)]
    target: Annotated[str, BeforeValidator(_single)]
    kernel: str
    normalize: bool = ModelOptions.normalize
    mean: MeanName = ModelOptions.mean
    coordinates: CoordinatesName = ModelOptions.coordinates
    deviation: str | None = None
    noise: Literal["agents"] | None = None
    robust: bool = False
    private: Literal["rows"] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    state: Place = "state"
    checkpoint_rounds: Count = 10
    training: TrainingPart = TrainingPart()
    prediction: PredictionPart = PredictionPart()
    timeouts: TimeoutsPart = TimeoutsPart()
    tls: TlsPart | None = None
    agent: Annotated[list[AgentPart], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _choose_kernel(cls, file: object) -> object:
        """The default kernel where the file names none."""
        if not isinstance(file, dict) or "kernel" in file:
            return file
        parts = [part for part in (file.get("training"), file.get("prediction")) if isinstance(part, dict)]
        return {**file, "kernel": default_kernel(*(part.get("method") for part in parts))}

    @property
    def predictor(self) -> str:
        """The method of [prediction], or the default one, which sends no rows where these are private."""
        given = self.prediction.method if "method" in self.prediction.model_fields_set else None
        return predictor_of(self.private, given).name

    @property
    def noise_model(self) -> NoiseModel:
        """How the noise of observations differs."""
        names = tuple(agent.name for agent in self.agent) if self.noise else ()
        return NoiseModel(known=self.deviation is not None, robust=self.robust, groups=names)

    @property
    def kernels(self) -> Kernels:
        """The one, or those to choose from, or one clear error."""
        rule = coordinate_rule(self.coordinates, self.inputs)
        plain = as_kernels(self.kernel, self.inputs)
        seen = seen_by(rule, plain, self.inputs, self.mean)
        return tuple(with_noise(one, self.noise_model) for one in seen)
