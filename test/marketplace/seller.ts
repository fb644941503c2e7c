// A remote seller whose terms a test can change between two requests.
import { encodePaymentRequiredHeader } from "@x402/core/http";
import type { Test } from "tap";
import type { TestAppOptions } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { localServer } from "../x402-client/sellers.ts";

export const SELLER = testAccount(900).address;
export const USDC = "0x3600000000000000000000000000000000000000";

export interface Seller {
  origin: string;
  host: string;
  requests: { method: string; path: string }[];
  /** Changed by tests. */
  terms: { payTo: string; amount: string; asset: string; network: string; scheme: string };
  answer: "402" | "200" | "500" | "redirect" | "garbage" | "hang-up";
}

export async function seller(t: Pick<Test, "teardown">): Promise<Seller> {
  const state: Seller = {
    origin: "",
    host: "",
    requests: [],
    terms: {
      payTo: SELLER,
      amount: "5000",
      asset: USDC,
      network: "eip155:5042002",
      scheme: "exact",
    },
    answer: "402",
  };
  const server = await localServer(t, (request, response) => {
    const path = request.url ?? "/";
    state.requests.push({ method: request.method ?? "", path });
    request.resume();
    if (state.answer === "hang-up") return void request.socket.destroy();
    if (state.answer === "200") return void response.end("free");
    if (state.answer === "500") return void response.writeHead(500).end("broken");
    if (state.answer === "redirect")
      return void response.writeHead(302, { location: "/elsewhere" }).end();
    if (state.answer === "garbage") return void response.writeHead(402).end("pay me");
    const required = {
      x402Version: 2,
      error: "Payment required",
      resource: {
        url: `${state.origin}${path}`,
        description: "Weather",
        mimeType: "application/json",
      },
      accepts: [
        { ...state.terms, maxTimeoutSeconds: 60, extra: { name: "USDC", version: "2" } } as never,
      ],
    };
    response
      .writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) })
      .end("{}");
  });
  state.origin = server.origin;
  state.host = new URL(server.origin).host;
  return state;
}

/** A local-world app that may reach these sellers. */
export const reaching = (...sellers: Seller[]): TestAppOptions => ({
  env: { FETCH_PRIVATE_ORIGINS: sellers.map(({ origin }) => origin).join(",") },
  configure: (config) => {
    config.local = {
      faucetPrivateKey: testAccount(0).privateKey,
      demoOwnerPrivateKey: testAccount(901).privateKey,
    };
  },
});
