"""The texts of a matplotlib figure and their places: for tests that nothing collides or is cut."""

import itertools

from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def labels(figure):
    """(text, box in pixels) of all that is written, as drawn."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    unseen = {id(text) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in _unseen(axis)}
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if id(text) not in unseen]


def _unseen(axis):
    """Labels of ticks that are not drawn: unused ones, and those beyond the axis' limits."""
    low, high = sorted(axis.get_view_interval())
    drawn = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    for tick in axis.findobj(Tick):
        if tick not in drawn:
            yield from (tick.label1, tick.label2)


def collisions(figure):
    """Pairs of labels that overlap by more than a pixel."""
    return [
        (one, other)
        for (one, box), (other, far) in itertools.combinations(labels(figure), 2)
        if min(box.x1, far.x1) - max(box.x0, far.x0) > 1 and min(box.y1, far.y1) - max(box.y0, far.y0) > 1
    ]


def cut(figure):
    """Labels that are not wholly inside the picture."""
    inner = figure.bbox
    return [
        text
        for text, box in labels(figure)
        if box.x0 < inner.x0 - 1 or box.x1 > inner.x1 + 1 or box.y0 < inner.y0 - 1 or box.y1 > inner.y1 + 1
    ]
