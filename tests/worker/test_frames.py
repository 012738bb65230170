import socket
from typing import Any

from kernelgate.tools.worker import frames


class Strict(socket.socket):
    """Refuses to send nothing, as a socket does whose other side has read all and is gone."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        assert data, "nothing was left to send"
        super().sendall(data, flags)


def test_a_frame_that_went_out_with_its_descriptors_is_not_sent_to_the_end_once_more() -> None:
    near, far = socket.socketpair()
    with Strict(fileno=near.detach()) as sender, far, socket.socket() as carried:
        frames.send(sender, {"op": "done"}, [carried.fileno()])
        received = frames.receive(far)
        assert received is not None
        assert received[0] == {"op": "done"}
        for descriptor in received[1]:
            socket.close(descriptor)
