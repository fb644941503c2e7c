/**
 * Allowances with which contracts take money from agents' wallets: raised for payments, revoked when an agent is
 * archived.
 */
import fp from "fastify-plugin";
import { uintOf } from "../../core/abi.ts";
import { newId } from "../../core/ids.ts";
import { readMany } from "../../infra/chain/contracts.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { ApiError } from "../../errors.ts";
import { allowanceCall, paymentSchemeOf, permitsCall } from "../../schemes/index.ts";
import type { Limits } from "../guardrails/rules.ts";
import { gasRefusals } from "../settlement/gas-store.ts";
import { Allowances, type AllowanceFault, type AllowancesDeps } from "./allowances.ts";
import { archivedWithAllowance, isUnderWay, newestRaise, promisedByAllowance } from "./store.ts";

declare module "fastify" {
  interface FastifyInstance {
    allowances: Allowances;
    /** Tests stop the process at a named point; nothing else sets it. */
    allowanceFaults: Faults;
  }
}

export default fp(
  async (app) => {
    const { pool, custody, settlement } = app;
    const faults: Faults = {};
    const readState: AllowancesDeps["read"] = async (wallet, spender, { notBefore, payment }) => {
      const { rpc, heads } = app.chainReads.of(wallet.chainId);
      const head = await heads.refresh();
      const blockNumber = head.number > notBefore ? head.number : notBefore;
      // The first diagnosis call of a failed payment checks whether its contract is deployed.
      const contract = payment && paymentSchemeOf(payment).diagnosisCalls?.(payment)[0];
      const [atomic, count, there] = await readMany(
        rpc,
        [
          allowanceCall(wallet.asset, wallet.from, spender),
          permitsCall(wallet.asset, wallet.from),
          ...(contract ? [contract] : []),
        ],
        blockNumber,
      );
      const known = { atomic: uintOf(atomic), count: uintOf(count) };
      if (known.atomic === undefined || known.count === undefined)
        throw new Error("the token's allowances cannot be read");
      return {
        atomic: known.atomic,
        count: known.count,
        isThere: contract === undefined || uintOf(there) !== undefined,
        blockNumber,
        timestampSeconds: head.timestampSeconds,
      };
    };
    const allowances = new Allowances({
      read: (...args) =>
        readState(...args).catch((cause: unknown) => {
          if (classifyChainError(cause).kind !== "unreachable") throw cause;
          throw new ApiError("chain_unavailable", { cause });
        }),
      store: {
        newest: (args) => newestRaise(pool, args),
        promised: (args) => promisedByAllowance(pool, args),
        toRevoke: () => archivedWithAllowance(pool),
      },
      leftOfDay: async (agentId) => leftOf(await app.limits.of(agentId)),
      custody,
      accept: async ({ agentId, authorization, acceptedBlock }) => {
        const id = newId("pay");
        try {
          const request = { id, agentId, authorization, acceptedBlock, kind: "allowance" as const };
          await settlement.accept(pool, { ...request, relay: true });
          return id;
        } catch (error) {
          if (isUnderWay(error)) return undefined;
          throw gasRefusals(error).get(id) ?? error;
        }
      },
      wait: (id, timeoutMs) => settlement.wait(id, timeoutMs),
      waitMs: app.config.settleWaitMs,
      nowSeconds: () => BigInt(Math.floor(Date.now() / 1_000)),
      fault: async (point) => faults.at?.(point),
      log: app.log,
    });
    app.decorate("allowanceFaults", faults);
    app.decorate("allowances", allowances);
    app.jobs.addTask("revoke-allowances", () => allowances.revokeArchived(), {
      cron: "* * * * *",
    });
  },
  { name: "allowances" },
);

interface Faults {
  at?: (point: AllowanceFault) => Promise<void>;
}

/** The least that any time-based limit leaves. */
function leftOf(limits: Limits | undefined): bigint {
  if (!limits) return 0n;
  return [limits.weekly, limits.monthly].reduce(
    (least, window) =>
      window !== null && window.remainingAtomic < least ? window.remainingAtomic : least,
    limits.remainingAtomic,
  );
}
