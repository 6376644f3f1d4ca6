"""Kafka's names of the states of groups and of their two types."""

from millstream.engine.groups.classic.vocabulary import GroupState
from millstream.engine.groups.consumer.vocabulary import ConsumersState

STATES: dict[GroupState | ConsumersState, str] = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING: "PreparingRebalance",
    GroupState.COMPLETING: "CompletingRebalance",
    GroupState.STABLE: "Stable",
    GroupState.DEAD: "Dead",
    ConsumersState.EMPTY: "Empty",
    ConsumersState.ASSIGNING: "Assigning",
    ConsumersState.RECONCILING: "Reconciling",
    ConsumersState.STABLE: "Stable",
}


def type_of(state: GroupState | ConsumersState) -> str:
    return "Consumer" if isinstance(state, ConsumersState) else "Classic"
