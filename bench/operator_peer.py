"""The peer of `bench operator`: the least that a Python process can do with the same objects and the same agents.

It lists and watches what the operator lists and watches, parses every event and keeps nothing; it answers every
heartbeat after the usual while without looking into it. No orders, no decisions, no checks, no writes: a floor.
"""

import asyncio
import json
import sys

from aiohttp import web

from bench.operator_api import Api, Places

JOBS = "/apis/trainmaster.dev/v1/trainingjobs"
LABEL = "trainmaster.dev/job"
HOLD_SECONDS = 2.0


async def main(places: Places) -> None:
    """Until it is killed."""
    application = web.Application()
    application.router.add_post("/v1/heartbeat", _answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", places.peer_port).start()
    async with Api(places) as api:
        watches = (_watch(api, JOBS, ""), _watch(api, "/api/v1/pods", LABEL), _watch(api, "/api/v1/services", LABEL))
        await asyncio.gather(*watches)


async def _answer(request: web.Request) -> web.Response:
    if json.loads(await request.read())["hold"]:
        await asyncio.sleep(HOLD_SECONDS)
    return web.Response(status=204)


async def _watch(api: Api, path: str, selector: str) -> None:
    async for _ in api.list_and_watch(path, selector):
        pass


if __name__ == "__main__":
    asyncio.run(main(Places.load(sys.argv[1])))
