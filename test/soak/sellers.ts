// The sellers of the soak: honest ones, and ones that fail, hang, deliver without settling, settle late, or
// settle one payment at several replicas at once. Each request has a different price, so that its payment is
// identified on chain.
import type { Test } from "tap";
import { privateKeyToAccount, generatePrivateKey } from "viem/accounts";
import type { Address } from "viem";
import {
  scriptedSeller,
  type Exchange,
  type ScriptedSeller,
} from "../x402-client/scripted-seller.ts";
import type { TestChain } from "../helpers/chain.ts";
import type { Random } from "../helpers/random.ts";
import { callOnce } from "./clients.ts";

/** Available only when the replicas run, which need the sellers' URLs first. */
interface SellersWorld {
  facilitators: () => string[];
  random: Random;
  nextAmount: () => bigint;
}

export interface SoakSellers {
  urls: string[];
  origins: string[];
  payees: Address[];
}

/** Less than the service allows an authorization, so that unused ones expire soon. */
const MAX_TIMEOUT_SECONDS = 30;
const LATE_MS = 3_000;

type Manner = (seller: ScriptedSeller, exchange: Exchange, world: SellersWorld) => unknown;

const MANNERS: Record<string, Manner> = {
  honest: deliverSettled(1),
  everywhere: deliverSettled(3),
  fails: (_seller, { response }) => void response.writeHead(500).end("no"),
  hangs: () => undefined,
  "never-settles": (_seller, { response }) => deliver(response, {}),
  late: (seller, { proof, response }) => {
    deliver(response, {});
    // With its own relayer, and possibly after the agent's call has given up.
    setTimeout(() => void seller.settle(proof).catch(() => undefined), LATE_MS).unref();
  },
};

export async function openSellers(
  t: Pick<Test, "teardown">,
  chain: TestChain,
  world: SellersWorld,
): Promise<SoakSellers> {
  const sellers = await Promise.all(
    Object.values(MANNERS).map(async (manner) => {
      const payee = privateKeyToAccount(generatePrivateKey()).address;
      const seller = await scriptedSeller(t, chain, payee);
      seller.script.terms = () =>
        seller.entry({
          amount: String(world.nextAmount()),
          maxTimeoutSeconds: MAX_TIMEOUT_SECONDS,
        });
      seller.script.onProof = (exchange) => void manner(seller, exchange, world);
      return { seller, payee };
    }),
  );
  return {
    urls: sellers.map(({ seller }) => seller.url),
    origins: sellers.map(({ seller }) => seller.origin),
    payees: sellers.map(({ payee }) => payee),
  };
}

/**
 * Settles through our facilitator, at this many replicas at once; delivers when one of them reports success.
 */
function deliverSettled(places: number): Manner {
  return async (seller, { proof, response }, world) => {
    const body = {
      x402Version: 2,
      paymentPayload: proof,
      paymentRequirements: proof.accepted,
    };
    for (let round = 0; round < 3; round += 1) {
      const chosen = world.random.shuffled(world.facilitators()).slice(0, places);
      const answers = await Promise.all(
        chosen.map((url) => callOnce(`${url}/api/x402/settle`, { body })),
      );
      const paid = answers.find((answer) => answer?.body["success"] === true);
      if (paid) {
        const transaction = String(paid.body["transaction"]);
        return deliver(response, seller.receipt({ transaction }));
      }
    }
    response.writeHead(402, { "content-type": "application/json" }).end('{"error":"not settled"}');
  };
}

function deliver(response: Exchange["response"], headers: Record<string, string>): void {
  response.writeHead(200, { "content-type": "application/json", ...headers }).end('{"answer":42}');
}
