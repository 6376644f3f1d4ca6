"""Every metric of a node, declared in one place, and the live values.

`declared` has names, kinds and meanings; exporters render them. A metric that is not declared there
cannot be counted.
"""

from millstream.metrics.declared import *
from millstream.metrics.kinds import BOUNDS as BOUNDS
from millstream.metrics.kinds import Exemplar as Exemplar
from millstream.metrics.kinds import Kind as Kind
from millstream.metrics.kinds import Metric as Metric
from millstream.metrics.kinds import Observed as Observed
from millstream.metrics.kinds import Sample as Sample
from millstream.metrics.values import Counter as Counter
from millstream.metrics.values import Histogram as Histogram
from millstream.metrics.values import Look as Look
from millstream.metrics.values import Metrics as Metrics
from millstream.metrics.values import Peaks as Peaks
from millstream.metrics.values import Step as Step
