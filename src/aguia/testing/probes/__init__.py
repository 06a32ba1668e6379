"""Probing a producer: what it does as a server, asked one thing at a time."""

from aguia.testing.probes.catalogue import PROBES
from aguia.testing.probes.exchange import Exchange
from aguia.testing.probes.prober import (
    NotAnAgent,
    Probe,
    Prober,
    ProbeResult,
    ProbeSettings,
    ProbeStatus,
    select,
)

__all__ = [
    "PROBES",
    "Exchange",
    "NotAnAgent",
    "Probe",
    "ProbeResult",
    "ProbeSettings",
    "ProbeStatus",
    "Prober",
    "select",
]
