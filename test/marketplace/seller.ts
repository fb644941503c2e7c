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
  requests: { method: string; path: string; hasBody: boolean }[];
  /** Tests change these. */
  terms: { payTo: string; amount: string; asset: string; network: string; scheme: string };
  answer: "402" | "200" | "500" | "redirect" | "garbage" | "hang-up" | "hang";
  /** Extra fields for `resource` in its 402. */
  resourceFields: Record<string, unknown>;
  extensions: Record<string, unknown> | undefined;
  /** The owners in its well-known file; undefined: no file. */
  owners: string[] | undefined;
  /** Its `/.well-known/x402`; undefined: no document. */
  wellKnown: string | undefined;
}

const OTHER_ANSWERS = {
  "200": [200, {}, "free"],
  "500": [500, {}, "broken"],
  redirect: [302, { location: "/elsewhere" }, ""],
  garbage: [402, {}, "pay me"],
} as const;

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
    resourceFields: {},
    extensions: undefined,
    owners: undefined,
    wellKnown: undefined,
  };
  const server = await localServer(t, (request, response) => {
    const path = request.url ?? "/";
    const hasBody = Number(request.headers["content-length"] ?? 0) > 0;
    state.requests.push({ method: request.method ?? "", path, hasBody });
    request.resume();
    if (path === "/.well-known/purser.json" && state.owners !== undefined) {
      response.writeHead(200).end(JSON.stringify({ owners: state.owners }));
      return;
    }
    if (path === "/.well-known/x402" && state.wellKnown !== undefined) {
      response.writeHead(200).end(state.wellKnown);
      return;
    }
    if (state.answer === "hang") return;
    if (state.answer === "hang-up") {
      request.socket.destroy();
      return;
    }
    if (state.answer !== "402") {
      const [status, headers, body] = OTHER_ANSWERS[state.answer];
      response.writeHead(status, headers).end(body);
      return;
    }
    const required = {
      x402Version: 2,
      error: "Payment required",
      resource: {
        url: `${state.origin}${path}`,
        description: "Weather",
        mimeType: "application/json",
        ...state.resourceFields,
      },
      ...(state.extensions && { extensions: state.extensions }),
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

/** Options for an app in local mode that may reach these sellers. */
export const reaching = (...sellers: Seller[]): TestAppOptions => ({
  env: { FETCH_PRIVATE_ORIGINS: sellers.map(({ origin }) => origin).join(",") },
  configure: (config) => {
    config.local = {
      faucetPrivateKey: testAccount(0).privateKey,
      demoOwnerPrivateKey: testAccount(901).privateKey,
    };
  },
});
