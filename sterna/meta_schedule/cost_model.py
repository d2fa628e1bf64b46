"""Cost models by name: the engine corrects its own analytic one by what it measures."""

from sterna.meta_schedule.names import Named


class CostModel(Named):
    """Predicts what candidates take."""

    what = "cost_model"

    def save(self, path: str) -> None:
        """Nothing is kept in a file: what was learnt is learnt again from the records."""

    def load(self, path: str) -> None:
        """Nothing is kept in a file: what was learnt is learnt again from the records."""


class PyCostModel(CostModel):
    """A model of the user's: the engine keeps to its own."""


class XGBModel(CostModel):
    """By this name in most programs."""

    options_known = ("extractor", "config", "num_warmup_samples", "early_stopping_rounds",
                     "verbose_eval", "average_peak_n", "adaptive_training", "num_tuning_cores",
                     "tree_method")


class MLPModel(CostModel):
    """By this name in programs that asked for a neural network."""

    options_known = ("trainer",)


class RandomModel(CostModel):
    """By this name in programs that asked for none."""

    options_known = ("seed", "path", "max_range")


CostModel.kinds = {"xgb": XGBModel, "mlp": MLPModel, "random": RandomModel, "none": CostModel}
create = CostModel.create
