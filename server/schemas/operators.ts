/** Wire types of the operators' page. */
import { Type, type Static } from "typebox";
import {
  AddressOutput,
  Amount,
  Described,
  Digits,
  Id,
  JsonValue,
  NetworkId,
  Nullable,
  OneOf,
  Page,
  Strict,
  ThirdParty,
  Timestamp,
  TxHash,
} from "./common.ts";

const Seconds = Type.Number({ minimum: 0, description: "Seconds" });
const Count = Type.Integer({ minimum: 0 });
/** A page of these docs, such as `operations/alerts/PurserGasOut`. */
const Runbook = Type.String({
  description: "The page of the documentation that says what to do, below `/docs/`",
  examples: ["operations/alerts/PurserGasOut"],
});

export const OperatorAttention = Type.Object({
  level: OneOf(["now", "soon"], "`now`: money does not move, or may be wrong"),
  network: Nullable(NetworkId),
  problem: Type.String({ description: "What is wrong, in one sentence" }),
  runbook: Runbook,
});
export type OperatorAttention = Static<typeof OperatorAttention>;

export const OperatorLane = Type.Object({
  network: NetworkId,
  address: AddressOutput,
  configured: Type.Boolean({
    description: "False: its key left the configuration, and it only finishes what it sent",
  }),
  onlyChannels: Type.Boolean({ description: "It only withdraws from agents' payment channels" }),
  balance: Nullable(Amount, "Null: the nodes do not respond"),
  paysFor: Nullable(
    Count,
    "How many more payments (or withdrawals from channels) its balance pays for, at twice the price of now",
  ),
  nextNonce: Digits,
  holder: Nullable(Type.String(), "Host and process id of the process that sends for it"),
  inFlight: Count,
  oldest: Nullable(
    Type.Object({
      nonce: Digits,
      seconds: Seconds,
      attempts: Count,
      error: Nullable(Type.String(), "The node's last refusal, by its class"),
    }),
    "The oldest transaction that no block contains",
  ),
});
export type OperatorLane = Static<typeof OperatorLane>;

const Waiting = Type.Object({
  network: NetworkId,
  class: OneOf(["withdrawals", "agents", "third parties"]),
  count: Count,
  oldestSeconds: Seconds,
});

const GasShare = Type.Object({
  network: NetworkId,
  share: OneOf(["strangers", "merchants", "agents", "withdrawals"]),
  perDay: Amount,
  left: Amount,
  used: Described(Amount, "In all"),
});

const Reconciled = Type.Object({
  network: NetworkId,
  proven: Nullable(Type.Boolean(), "Whether ledger and chain agree; null: not compared yet"),
  asOfBlock: Nullable(Digits),
  asOf: Nullable(Timestamp),
  readAt: Nullable(Timestamp, "When blocks were last read"),
  headBlock: Nullable(Digits),
  open: Described(Count, "Open differences"),
  heldUntilBlock: Nullable(
    Digits,
    "Agents do not pay until reconciliation has read up to there, because this database may lack payments",
  ),
});

const Running = Type.Object({
  id: Id,
  host: Type.String(),
  pid: Type.Integer(),
  worker: Nullable(Type.String()),
  version: Type.String(),
  commit: Type.String(),
  startedAt: Timestamp,
  seenAt: Timestamp,
  gone: Type.Boolean({ description: "It was not seen for two minutes and did not say goodbye" }),
});

const Part = Type.Object({ part: Type.String(), ok: Type.Boolean(), detail: Type.String() });

export const OperatorOverview = Type.Object({
  at: Timestamp,
  attention: Type.Array(OperatorAttention, { description: "Empty: all is well" }),
  parts: Type.Array(Part, { description: "As in `/api/ready`" }),
  lanes: Type.Array(OperatorLane),
  waiting: Type.Array(Waiting),
  unknown: Type.Array(Type.Object({ network: NetworkId, count: Count, oldestSeconds: Seconds }), {
    description: "Agents' payments whose outcome is not known yet",
  }),
  gas: Type.Array(GasShare),
  reconciliation: Type.Array(Reconciled),
  requests: Type.Array(
    Type.Object({
      operation: OneOf(["verify", "settle"]),
      outcome: OneOf(["ok", "refused", "pending", "error"]),
      count: Count,
    }),
    { description: "Requests to the facilitator in the last 24 hours" },
  ),
  failing: Type.Object({ webhooks: Count, mail: Count, devices: Count, jobs: Count }),
  processes: Type.Array(Running),
  screening: Nullable(
    Type.Object({
      listAgeSeconds: Nullable(Seconds, "Null: a service answers"),
      maxAgeSeconds: Nullable(Seconds),
    }),
    "Null: addresses are not screened",
  ),
});
export type OperatorOverview = Static<typeof OperatorOverview>;

export const OperatorDifference = Type.Object({
  network: NetworkId,
  kind: Type.String({ examples: ["transfer_unknown"] }),
  key: Type.String(),
  meaning: Type.String(),
  agentId: Nullable(Id),
  txHash: Nullable(TxHash),
  blockNumber: Nullable(Digits),
  detail: JsonValue,
  seenAt: Timestamp,
  closedAt: Nullable(Timestamp, "Null: it is open"),
});
export const OperatorDifferences = Type.Object({
  complete: Type.Boolean({ description: "False: there are more open ones than these" }),
  items: Type.Array(OperatorDifference, {
    description: "The newest 200 that are open, then the last 50 that were closed",
  }),
});
export type OperatorDifferences = Static<typeof OperatorDifferences>;

export const OperatorAccounts = Type.Object({
  items: Type.Array(
    Type.Object({
      network: Nullable(NetworkId),
      account: Type.String({
        description:
          "A gas account, or `answers:` and an owner's address: its quota for kept answers",
        examples: ["payee:0x70997970c51812dc3a010c7d01b50e0d17dc79c8"],
      }),
      left: Described(Type.Integer({ minimum: 0, maximum: 100 }), "Per cent of the day's budget"),
      used: Nullable(Amount, "In all"),
    }),
    { description: "Those with less than a fifth left, the lowest first, at most 100" },
  ),
});
export type OperatorAccounts = Static<typeof OperatorAccounts>;

export const OperatorMerchants = Type.Object({
  since: Timestamp,
  complete: Type.Boolean({
    description: "False: there were more settlements; the newest are counted",
  }),
  items: Type.Array(
    Type.Object({
      network: NetworkId,
      address: AddressOutput,
      settled: Count,
      failed: Count,
      open: Count,
      volume: Amount,
      fees: Amount,
    }),
    { description: "The 100 with the most settlements" },
  ),
});
export type OperatorMerchants = Static<typeof OperatorMerchants>;

export const OperatorDelivery = Type.Object({
  id: Id,
  way: OneOf(["webhook", "mail", "device"]),
  owner: AddressOutput,
  failures: Count,
  disabled: Type.Boolean(),
  since: Nullable(Timestamp),
  thirdParty: ThirdParty({
    host: Nullable(Type.String(), "Of a webhook"),
    error: Nullable(Type.String()),
  }),
});
export const OperatorDeliveries = Type.Object({
  items: Type.Array(OperatorDelivery, { description: "The newest 100 of each way" }),
});
export type OperatorDeliveries = Static<typeof OperatorDeliveries>;

export const OperatorEntry = Type.Object({
  seq: Digits,
  at: Timestamp,
  action: Type.String({ examples: ["ledger.difference_healed"] }),
  wallet: Nullable(AddressOutput, "Who did it on the operators' page"),
  who: Type.String({ description: "The operator or system user, and the host" }),
  what: JsonValue,
});
export const OperatorRecord = Page(OperatorEntry);
export type OperatorEntry = Static<typeof OperatorEntry>;

export const OperatorConfiguration = Type.Object({
  groups: Type.Array(
    Type.Object({
      title: Type.String(),
      settings: Type.Array(
        Type.Object({
          key: Type.String(),
          isSet: Type.Boolean(),
          value: Nullable(Type.String(), "Null: a secret, or not set. Of a URL only its host"),
        }),
      ),
    }),
  ),
});
export type OperatorConfiguration = Static<typeof OperatorConfiguration>;

export const OperatorChecks = Type.Object({
  at: Timestamp,
  findings: Type.Array(
    Type.Object({
      check: Type.String(),
      level: OneOf(["ok", "warning", "wrong"]),
      says: Type.String(),
      todo: Nullable(Type.String()),
    }),
  ),
});
export type OperatorChecks = Static<typeof OperatorChecks>;

const confirmed = {
  why: Type.String({ minLength: 1, maxLength: 500, description: "The reason, for later readers" }),
  confirmationId: Type.String({
    pattern: "^[A-Za-z0-9_-]{16,64}$",
    description: "Random, new for each confirmation: a repeat with the same one changes nothing",
    examples: ["b1946ac92492d2347c6235b4d2611184"],
  }),
};
export const CloseDifferenceBody = Strict({
  network: NetworkId,
  kind: Type.String({ minLength: 1, maxLength: 64 }),
  key: Type.String({ minLength: 1, maxLength: 300 }),
  ...confirmed,
});
export const ReadAgainBody = Strict({ network: NetworkId, fromBlock: Digits, ...confirmed });
export const OperatorDone = Type.Object({
  replayed: Type.Boolean({ description: "It was done before with this confirmation" }),
  entry: Nullable(Digits, "The entry in the operators' record"),
});
