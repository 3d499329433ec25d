"""The tool is called, once."""

from collections.abc import Callable

from gateway.domain.call import Admitted, Executed
from gateway.domain.outcome import Delivery, Phase


class Execute:
    """Sends what was prepared, and gives the slot back."""

    name = "execute"

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report

    async def __call__(self, call: Admitted) -> Executed:
        """Deliver; whatever goes wrong on the way is a delivery too."""
        try:
            delivered = await call.dispatch.send()
        except Exception as error:  # noqa: BLE001 - a fault of an executor must not leave the call without an outcome
            self._report(error)
            delivered = Delivery(phase=Phase.LOST, problem="internal")
        finally:
            call.dispatch.release()
        return Executed.after(call, delivered=delivered)
