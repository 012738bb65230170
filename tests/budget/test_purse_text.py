from hypothesis import given
from hypothesis import strategies as st

from kernelgate.budget.model import Budget, Purse, Spent
from kernelgate.budget.purse import purse_text
from kernelgate.tasks.model import canonical_json

seconds = st.floats(0.0, 1e7).map(lambda value: round(value, 9))
calls = st.integers(0, 1_000_000)
spent = st.builds(
    Spent, compile_calls=calls, precise_calls=calls, override_calls=calls, device_s=seconds, work_s=seconds
)


@given(
    granted=st.builds(Budget, device_s=seconds, override_calls=st.none() | calls, quick_calls=calls),
    opened=spent,
    settled=spent,
)
def test_the_text_of_a_purse_is_its_canonical_json(granted: Budget, opened: Spent, settled: Spent) -> None:
    purse = Purse(granted=granted, open=opened, settled=settled)
    text = purse_text(purse)
    assert text == canonical_json(purse.model_dump(mode="json"))
    assert Purse.model_validate_json(text) == purse
