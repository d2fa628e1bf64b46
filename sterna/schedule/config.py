"""The settings of schedules: keys of PassContext's config."""

from sterna.ir.transform import register_config

ANSWERS = "schedule.answers"

register_config(
    ANSWERS, dict, {},
    "answers to questions of schedules, by their names or by scope/name, instead of the cheapest",
)
