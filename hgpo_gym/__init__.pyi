"""The public names of hgpo_gym, each with the module that it is imported from at its first use."""

from .advantages import (
    Advantages as Advantages,
    StepBatch as StepBatch,
    cluster_observations as cluster_observations,
    estimate as estimate,
    register_estimator as register_estimator,
)
from .advantages.statistics import (
    discounted_returns as discounted_returns,
    relative_to_group as relative_to_group,
)
from .api import (
    compare as compare,
    evaluate as evaluate,
    load_run as load_run,
    train as train,
)
from .client import (
    RemoteTextEnv as RemoteTextEnv,
)
from .envs import (
    DiscreteActions as DiscreteActions,
    DiscreteTask as DiscreteTask,
    HashedText as HashedText,
    TextEnv as TextEnv,
    TextFromDiscrete as TextFromDiscrete,
    TextVectorEnv as TextVectorEnv,
    TokenIds as TokenIds,
    Turn as Turn,
    check_text_env as check_text_env,
    make as make,
    make_vec as make_vec,
    register as register,
)
from .envs.splits import (
    Split as Split,
    in_split as in_split,
)
from .memory import (
    ContextWrapper as ContextWrapper,
    KeyFunction as KeyFunction,
    Memory as Memory,
    make_memory as make_memory,
    register_key_function as register_key_function,
    register_memory as register_memory,
)
from .plugins import (
    load_plugins as load_plugins,
)
from .rollouts.samplers import (
    Collector as Collector,
    Curriculum as Curriculum,
    Filter as Filter,
    TaskDraw as TaskDraw,
    register_sampler as register_sampler,
)
from .rollouts.shaping import (
    register_shaping as register_shaping,
)
from .rollouts.teams import (
    Team as Team,
    register_team as register_team,
    with_outputs as with_outputs,
)
from .trainers.learners import (
    register_learner as register_learner,
)
from .trainers.update.objectives import (
    OBJECTIVES as OBJECTIVES,
    Prepared as Prepared,
    Surrogate as Surrogate,
    Tokens as Tokens,
    log_ratio as log_ratio,
    prepared_by as prepared_by,
    register_objective as register_objective,
)

__version__: str
