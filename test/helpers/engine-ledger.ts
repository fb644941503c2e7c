// An agent's wallet with its ledger, for engine tests: payments as the guardrails leave them, reserved and counted.
import { newId } from "../../server/core/ids.ts";
import type { SettlementKind, SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import type { TestChain } from "./chain.ts";
import { authorize, payers, randomAddress, request } from "./engine.ts";
import type { TestDatabase } from "./postgres.ts";

export async function walletWithLedger(chain: TestChain, database: TestDatabase) {
  const [account] = payers(1);
  const [thirdParty] = chain.accounts;
  if (!account || !thirdParty) throw new Error("no account");
  await chain.mint(account.address, 10_000n);
  const [ownerId, agentId] = [newId("own"), newId("agt")];
  await database.pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [
    ownerId,
    randomAddress(),
  ]);
  await database.pool.query(
    "INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit) VALUES ($1, $2, 'a', $3, $4, 5000)",
    [agentId, ownerId, `eip155:${chain.chainId}`, account.address.toLowerCase()],
  );
  return {
    account,
    agentId,
    /** Creates a reserved and signed payment of 1,000 atomic units, not accepted yet. An x402 payment is only watched. */
    async spend(
      to: `0x${string}`,
      options: { kind?: SettlementKind; validForSeconds?: number } = {},
    ): Promise<SettlementRequest> {
      const { kind = "spend", validForSeconds = 600 } = options;
      const { timestamp } = await chain.publicClient.getBlock();
      const authorization = await authorize(chain, account, {
        to,
        validBefore: timestamp + BigInt(validForSeconds),
      });
      const wanted = request(authorization, { kind, agentId, relay: kind !== "x402" });
      await database.pool.query(
        `WITH counted AS (UPDATE agents SET window_sum = window_sum + 1000 WHERE id = $1)
         INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
         VALUES ($1, $2, $7, 'reserved', $3, $4, $5, 1000, $6)`,
        [
          agentId,
          wanted.id,
          chain.chainId,
          chain.usdc.toLowerCase(),
          to,
          authorization.nonce,
          kind,
        ],
      );
      return wanted;
    },
    /** Relays it by a third party's transaction; with mining disabled it stays pending. */
    relayedByThirdParty: ({ authorization }: SettlementRequest) =>
      chain.walletClient(thirdParty).sendTransaction({
        to: chain.usdc,
        data: transferCalldata(authorization, authorization.signature),
        gas: 200_000n,
      }),
    async ledger(paymentId: string) {
      const { rows } = await database.pool.query(
        "SELECT p.*, a.window_sum FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.id = $1",
        [paymentId],
      );
      return rows[0];
    },
  };
}
