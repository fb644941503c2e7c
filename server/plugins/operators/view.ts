/** The answers of the operators' detail routes, from their rows. */
import { getAddress } from "viem";
import { plainWords } from "../../core/foreign-text.ts";
import { formatGas } from "../../core/gas.ts";
import { formatAtomic } from "../../core/money.ts";
import type {
  OperatorAccounts,
  OperatorDeliveries,
  OperatorDifferences,
  OperatorEntry,
  OperatorMerchants,
} from "../../schemas/operators.ts";
import type { OperatorEntry as Entry } from "../audit/operators.ts";
import { MEANING } from "../reconciliation/repair.ts";
import type {
  readDifferences,
  readFailingDeliveries,
  readLowAccounts,
  readMerchants,
} from "./store.ts";

type Rows<F extends (...args: never[]) => unknown> = Awaited<ReturnType<F>>;

const networkOf = (chainId: bigint): string => `eip155:${chainId}`;

export const viewDifferences = ({
  complete,
  rows,
}: Rows<typeof readDifferences>): OperatorDifferences => ({
  complete,
  items: rows.map(({ chainId, kind, key, agentId, txHash, blockNumber, ...row }) => ({
    network: networkOf(chainId),
    kind,
    key,
    meaning: MEANING[kind as keyof typeof MEANING] ?? kind,
    agentId,
    txHash,
    blockNumber: blockNumber?.toString() ?? null,
    detail: row.detail,
    seenAt: row.seenAt.toISOString(),
    closedAt: row.healedAt?.toISOString() ?? null,
  })),
});

export const viewAccounts = (rows: Rows<typeof readLowAccounts>): OperatorAccounts => ({
  items: rows.map(({ chainId, account, left, used }) => ({
    network: chainId === null ? null : networkOf(chainId),
    account,
    left,
    used: used === null ? null : formatGas(used),
  })),
});

export const viewMerchants = ({
  since,
  complete,
  rows,
}: Rows<typeof readMerchants>): OperatorMerchants => ({
  since: since.toISOString(),
  complete,
  items: rows.map(({ chainId, address, settled, failed, open, volume, fees }) => ({
    network: networkOf(chainId),
    address: getAddress(address),
    settled,
    failed,
    open,
    volume: formatAtomic(volume),
    fees: formatAtomic(fees),
  })),
});

const MAX_ERROR = 300;

export const viewDeliveries = (rows: Rows<typeof readFailingDeliveries>): OperatorDeliveries => ({
  items: rows.map(({ id, way, owner, failures, disabled, since, url, error }) => ({
    id,
    way,
    owner: getAddress(owner),
    failures,
    disabled,
    since: since?.toISOString() ?? null,
    thirdParty: {
      untrusted: true,
      // The rest of the URL may be a secret of its owner.
      host: url !== null && URL.canParse(url) ? new URL(url).host : null,
      error: error === null ? null : plainWords(error, MAX_ERROR),
    },
  })),
});

export function viewEntry({ seq, at, who, action, what }: Entry): OperatorEntry {
  // Hashes of configured values.
  const { salt: _salt, whole: _whole, values: _values, confirmationId: _id, ...shown } = what;
  const person = who.operator === null ? who.user : `${who.operator} (${who.user})`;
  return {
    seq: String(seq),
    at,
    action,
    wallet: who.wallet === undefined ? null : getAddress(who.wallet),
    who: `${person}@${who.host}`,
    what: shown,
  };
}
