"""Describe OneDevice: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.pages.strategy_page import NEITHER, StrategyPage

PAGE = StrategyPage(
    title="One device",
    parallel=NEITHER,
    timing="",
    centre="",
    holds="One process holds the whole model and works on the whole batch.",
    talks="Nobody talks to anybody.",
    take="The model and the batch fit one device and one device is fast enough. The reference for all others.",
    leave="Training takes longer than you can wait, or memory does not suffice.",
    failure="The process starts again in the same pod from its newest state.",
    source="Robbins and Monro, 1951",
    yaml="{type: OneDevice}",
    traffic="nothing travels",
    memory="the whole model, its gradients and its optimizer, on one device",
    picture="""\
flowchart LR
    data[(samples)] --> model["whole model, whole batch"]""",
)
