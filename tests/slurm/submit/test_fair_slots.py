import asyncio

import pytest

from rightsizer_slurm.submit.fair_slots import FairSlots


@pytest.mark.parametrize(
    ("slots", "order"),
    [(1, ["a1", "b1", "c1", "a2", "b2", "a3"]), (2, ["a1", "b1", "c1", "a2", "b2", "a3"])],
    ids=["one slot", "two slots"],
)
def test_users_take_turns(slots: int, order: list[str]) -> None:
    began: list[str] = []

    async def work(fair: FairSlots, user: int, name: str) -> None:
        async with fair.turn(user):
            began.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        fair = FairSlots(slots)
        jobs = [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (2, "b2"), (3, "c1")]
        await asyncio.gather(*(work(fair, user, name) for user, name in jobs))
        assert fair.waiting(1) == 0

    asyncio.run(main())
    assert began == order


def test_a_user_has_one_slot_and_a_fault_frees_it() -> None:
    async def main() -> None:
        fair = FairSlots(4)
        running = asyncio.Event()

        async def broken() -> None:
            async with fair.turn(1):
                running.set()
                await asyncio.sleep(0.05)
                raise ValueError

        first, second = asyncio.create_task(broken()), asyncio.create_task(broken())
        await running.wait()
        assert fair.waiting(1) == 1
        done = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(error) for error in done] == [ValueError, ValueError]

    asyncio.run(main())
