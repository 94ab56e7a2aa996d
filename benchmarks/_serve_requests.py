"""The load of `serve_load.py`: requests over raw connections, in processes of their own."""

import asyncio
import time

from nestcode.arrays import Floats
from nestcode.wire import FLOAT32, HITS

ANSWER = 10 * 12 + 8  # bytes of ten hits


def generate(
    port: int, query: str, queries: Floats, connections: int, seconds: float, rate: float | None
) -> tuple[list[float], int, float]:
    """Send requests on several connections; return the seconds each took, how many failed, and the seconds of all."""
    return asyncio.run(_generate(port, query, queries, connections, seconds, rate))


async def _generate(
    port: int, query: str, queries: Floats, connections: int, seconds: float, rate: float | None
) -> tuple[list[float], int, float]:
    times: list[float] = []
    failed = 0
    head = f"POST /v1/search?k=10{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nAccept: {HITS}\r\n"
    start_of = f"{head}Content-Length: {queries[0].nbytes}\r\n\r\n".encode()

    async def send(connection: int) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number, start = 0, time.perf_counter() + (0 if rate is None else connection / connections / rate)
        while True:
            due = time.perf_counter() if rate is None else start + number / rate
            if due > begin + seconds:
                break
            await asyncio.sleep(max(0, due - time.perf_counter()))
            writer.write(start_of + queries[(97 * connection + number) % len(queries)].tobytes())
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer[:20] or len(await reader.readexactly(ANSWER)) != ANSWER:
                failed += 1
                break
            times.append(time.perf_counter() - due)
            number += 1
        writer.close()

    begin = time.perf_counter()
    done = await asyncio.gather(*(send(number) for number in range(connections)), return_exceptions=True)
    return times, failed + sum(isinstance(one, BaseException) for one in done), time.perf_counter() - begin
