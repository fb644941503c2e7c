"""The official Python client: connects by OAuth, pays once, renews its token, and prints the results as JSON lines."""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlparse

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

BASE, SELLER_URL = sys.argv[1], sys.argv[2]


def say(**what):
    print(json.dumps(what), flush=True)


class Memory:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def redirect(url):
    say(authorize=url)


async def callback():
    """The owner's browser came back to the address that stands on the next line."""
    line = await asyncio.to_thread(sys.stdin.readline)
    query = parse_qs(urlparse(line.strip()).query)
    return AuthorizationCodeResult(
        code=query["code"][0], state=query["state"][0], iss=query["iss"][0]
    )


def provider(storage):
    return OAuthClientProvider(
        server_url=f"{BASE}/mcp",
        client_metadata=OAuthClientMetadata(
            client_name="Python Client",
            redirect_uris=["http://127.0.0.1:3030/callback"],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        ),
        storage=storage,
        redirect_handler=redirect,
        callback_handler=callback,
    )


async def call(auth, tool, arguments):
    async with create_mcp_http_client(auth=auth) as http:
        transport = streamable_http_client(f"{BASE}/mcp", http_client=http)
        async with Client(transport) as client:
            result = await client.call_tool(tool, arguments)
            return json.loads(result.content[0].text)


async def main():
    storage = Memory()
    auth = provider(storage)
    paid = await call(auth, "x402_fetch", {"url": SELLER_URL, "maxAmount": "0.01"})
    say(paid=paid["paid"], amount=paid["amountPaid"])
    first = storage.tokens.refresh_token
    auth.context.token_expiry_time = 1
    status = await call(auth, "wallet_status", {})
    say(name=status["name"], renewed=storage.tokens.refresh_token != first)


asyncio.run(main())
