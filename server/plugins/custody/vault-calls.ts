/**
 * The messages between the service and the custody process: a call is `POST /<name>` with a JSON array of its
 * arguments. Each side validates what it receives with these schemas: an object instead of a name would become a
 * database filter, and garbage instead of a signature would be stored.
 */
import { Type, type TSchema } from "typebox";
import { Value } from "typebox/value";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import {
  AGENT_FIELDS,
  isSet,
  PAYEE_FIELDS,
  type Field,
} from "../../../packages/rules/src/fields.ts";
import type { RulesInForce } from "../../core/rules.ts";
import { CustodyError, NotSignedFor } from "./envelope.ts";
import type { KeyVault } from "./key-vault.ts";

const Name = Type.String({ pattern: "^[A-Za-z0-9_-]{1,100}$" });
const Address = Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" });
const Hash = Type.String({ pattern: "^0x[0-9a-fA-F]{64}$" });
const Nonce = Type.String({ pattern: "^([a-z0-9]{1,10}:)?0x[0-9a-fA-F]{64}$" });
const Hex = Type.String({ pattern: "^0x([0-9a-fA-F]{2})*$" });
/** 65 bytes: r, s, v. */
const Signature = Type.String({ pattern: "^0x[0-9a-fA-F]{130}$" });
const Text = Type.String();
const ChainId = Type.Integer({ minimum: 0 });
/** The JSON here has bigints and bytes (`encode`); JSON Schema has no type for either. */
const Whole = Type.Refine(Type.Unknown(), (value) => typeof value === "bigint");
/** An amount of the channel contract. Larger ones have no encoding. */
const Amount = Type.Refine(
  Type.Unknown(),
  (value) => typeof value === "bigint" && value >= 0n && value < 2n ** 128n,
);
const Bytes = Type.Refine(
  Type.Unknown(),
  (value) => value instanceof Uint8Array && value.length <= 8_192,
);
const OrNull = (schema: TSchema) => Type.Union([schema, Type.Null()]);
const closed = { additionalProperties: false };

const Sealed = { kid: Name, wrappedDataKey: Bytes, ciphertext: Bytes };
const Seal = {
  ownerAddress: Address,
  ownerChainId: ChainId,
  policyDigest: Hash,
  rulesDigest: Hash,
  revision: Type.Integer({ minimum: 0 }),
};
const SealedWallet = Type.Object(Sealed, closed);
const Held = Type.Object({ agentId: Name, address: Address, ...Seal, ...Sealed });
const Owner = Type.Object({ address: Address, chainId: ChainId }, closed);
const UNSET = Type.Null();
/** A setting that is newer than version 1 may be missing: then it is not set. */
const settings = (fields: readonly Field[]): Record<string, TSchema> =>
  Object.fromEntries(
    fields.map(({ member, kind, since }) => {
      const value = kind.column === "text" ? Type.Unsafe(kind.schema ?? {}) : Whole;
      const schema = kind.unset === null ? Type.Union([value, UNSET]) : value;
      return [member, since === 1 ? schema : Type.Optional(schema)];
    }),
  );
const Payee = Type.Object({
  address: Address,
  label: Text,
  site: Text,
  ...settings(PAYEE_FIELDS),
});
const Rules = Type.Object({
  status: Type.Enum(["active", "paused", "archived"]),
  ...settings(AGENT_FIELDS),
  payees: Type.Array(Payee),
});

/** core/orders.ts validates the order itself, in every detail. */
const signedOrder = {
  chainId: ChainId,
  order: Type.Record(Text, Type.Unknown()),
  digest: Hash,
  signature: Hex,
};
const SignedOrder = Type.Object(signedOrder);
const Move = Type.Object({ ...signedOrder, secondSignature: Hex });
const Terms = Type.Object({ scheme: Text });
const Authorization = Type.Object({
  chainId: ChainId,
  asset: Address,
  from: Address,
  to: Address,
  value: Whole,
  validAfter: Whole,
  validBefore: Whole,
  nonce: Nonce,
  terms: Type.Optional(OrNull(Terms)),
});
const Cover = Type.Union([
  Type.Object({ kind: Type.Literal("policy"), site: Type.Optional(Text) }),
  Type.Object({ kind: Type.Literal("approval"), approvalId: Name, site: Type.Optional(Text) }),
  Type.Object({ kind: Type.Literal("withdrawal"), orderNonce: Hash }),
]);
const Resealed = Type.Object({ seal: Type.Object(Seal, closed), sealed: SealedWallet }, closed);
const SignedAuthorization = Type.Object({
  ...Authorization.properties,
  signature: Signature,
});
const Channel = Type.Object({
  payer: Address,
  payerAuthorizer: Address,
  receiver: Address,
  receiverAuthorizer: Address,
  token: Address,
  withdrawDelay: Type.Integer({ minimum: 0 }),
  salt: Hash,
});
const ChannelOrder = Type.Object({
  chainId: ChainId,
  config: Channel,
  ceiling: Amount,
  before: Type.Optional(Type.Object({ ceiling: Amount, voucher: Signature })),
  deposit: Type.Optional(Type.Object({ amount: Amount, validBefore: Whole, salt: Hash })),
});
const ChannelTransaction = Type.Object({
  chainId: ChainId,
  nonce: Type.Integer({ minimum: 0 }),
  gas: Whole,
  maxFeePerGas: Whole,
  maxPriorityFeePerGas: Whole,
  to: Address,
  value: Whole,
  data: Hex,
});
const Purpose = Type.String({ maxLength: 200 });

type Method = keyof KeyVault;

/** The arguments and the result of each call. */
const CALLS: Record<Method, { args: TSchema[]; result: TSchema }> = {
  keyNames: { args: [], result: Type.Object({ active: Name, kids: Type.Array(Name) }) },
  seal: { args: [Purpose, Bytes], result: Bytes },
  open: { args: [Purpose, Bytes], result: Bytes },
  createWallet: {
    args: [Name, Owner],
    result: Type.Object({ address: Address, sealed: SealedWallet }, closed),
  },
  adopt: {
    args: [
      Type.Object({ agentId: Name, address: Address, sealed: SealedWallet, owner: Owner }),
      Type.Object({ signed: SignedOrder, rules: Rules }),
    ],
    result: Resealed,
  },
  reseal: {
    args: [
      Held,
      Type.Object({ current: Rules, wanted: Rules, signed: Type.Optional(SignedOrder) }),
    ],
    result: Resealed,
  },
  reown: {
    args: [Held, Owner, Type.Object({ current: Rules, wanted: Rules, signed: Move })],
    result: Resealed,
  },
  signAuthorization: { args: [Name, Authorization, Cover], result: Signature },
  signAllowance: {
    args: [
      Name,
      Type.Object({ authorization: Authorization, cover: Cover }),
      Type.Object({ value: Whole, count: Whole, deadline: Whole }),
    ],
    result: SignedAuthorization,
  },
  signRevocation: {
    args: [
      Name,
      Type.Object({ chainId: ChainId, asset: Address }),
      Type.Object({ spender: Address, count: Whole, deadline: Whole }),
    ],
    result: SignedAuthorization,
  },
  signCancel: {
    args: [
      Name,
      Type.Object({
        chainId: ChainId,
        asset: Address,
        nonce: Nonce,
        terms: Type.Optional(OrNull(Terms)),
      }),
    ],
    result: Signature,
  },
  channelSigners: { args: [], result: Type.Array(Address) },
  signWithdrawal: { args: [Address, ChannelTransaction], result: Signature },
  signVoucher: {
    args: [Name, ChannelOrder, Text],
    result: Type.Object({ voucher: Signature, deposit: OrNull(Signature) }),
  },
  signIn: {
    args: [Type.Object({ agentId: Name, url: Text, payee: Address, challenge: Text })],
    result: Type.Union([Type.Null(), Type.Object({ address: Address, signature: Signature })]),
  },
};

const isMethod = (name: string): name is Method => Object.hasOwn(CALLS, name);

/** Throws if the call is invalid, or names a setting that only a newer release knows. */
export function assertCall(name: string, args: unknown): asserts name is Method {
  if (!isMethod(name)) throw new CustodyError("unknown call");
  const { args: wanted } = CALLS[name];
  const isRight =
    Array.isArray(args) &&
    args.length === wanted.length &&
    wanted.every((schema, index) => Value.Check(schema, args[index]));
  if (!isRight) throw new CustodyError(`${name} got invalid arguments`);
  if (rulesIn(args).some(hasUnknownSetting))
    throw new ApiError("policy_version_unknown", {
      detail: "The custody process does not know all settings of this agent. Nothing was signed.",
    });
}

/** The rules in the arguments of a call, which were checked. */
function rulesIn(args: readonly unknown[]): RulesInForce[] {
  const { rules, current, wanted } = (args.at(-1) ?? {}) as Record<string, unknown>;
  return [rules, current, wanted].filter((one) => one !== undefined) as RulesInForce[];
}

const known = (object: object, fields: readonly Field[], ...others: string[]): boolean => {
  const names = new Set([...fields.map(({ member }) => member), ...others]);
  return Object.keys(object).every((name) => names.has(name));
};

const hasUnknownSetting = (rules: RulesInForce): boolean =>
  !known(rules, AGENT_FIELDS, "status", "payees") ||
  !rules.payees.every((payee) => known(payee, PAYEE_FIELDS, ...OF_PAYEE));

/** The members of a payee besides its settings: rows of the allowlist have all of them. */
const OF_PAYEE = ["address", "label", "site", "agentId", "createdAt"];

/**
 * The rules for a custody process that may be of an older release: without newer settings that are not set, which it
 * does not know and does not need.
 */
export function sentRules(rules: RulesInForce): RulesInForce {
  const needed = (fields: readonly Field[], settings: object): object =>
    Object.fromEntries(
      fields
        .filter((field) => field.since === 1 || isSet(settings, field))
        .map(({ member }) => [member, (settings as Record<string, unknown>)[member]]),
    );
  return {
    ...needed(AGENT_FIELDS, rules),
    status: rules.status,
    payees: rules.payees.map((payee) => ({
      ...needed(PAYEE_FIELDS, payee),
      address: payee.address,
      label: payee.label,
      site: payee.site,
    })),
  } as unknown as RulesInForce;
}

export const isResult = (name: Method, result: unknown): boolean =>
  Value.Check(CALLS[name].result, result);

/** The body of a response. */
export type Answer =
  | { ok: true; result: unknown }
  | { ok: false; kind: "refused"; code: ErrorCode; detail: string; extra: object; headers: object }
  | { ok: false; kind: "not-signed" | "custody"; message: string }
  | { ok: false; kind: "fault" };

/** Refusals keep their code; the client gets no details of internal errors. */
export function answerOf(error: unknown): Answer {
  if (error instanceof ApiError) {
    const { code, message, extra, headers } = error;
    return { ok: false, kind: "refused", code, detail: message, extra, headers };
  }
  if (error instanceof NotSignedFor)
    return { ok: false, kind: "not-signed", message: error.message };
  if (error instanceof CustodyError) return { ok: false, kind: "custody", message: error.message };
  return { ok: false, kind: "fault" };
}

const Refusal = Type.Union([
  Type.Object({
    ok: Type.Literal(false),
    kind: Type.Literal("refused"),
    code: Type.Enum(Object.keys(ERRORS)),
    detail: Text,
    extra: Type.Record(Text, Type.Unknown()),
    headers: Type.Record(Text, Text),
  }),
  Type.Object({
    ok: Type.Literal(false),
    kind: Type.Enum(["not-signed", "custody"]),
    message: Text,
  }),
  Type.Object({ ok: Type.Literal(false), kind: Type.Literal("fault") }),
]);
const Success = Type.Object({ ok: Type.Literal(true), result: Type.Unknown() });

export const isAnswer = (answer: unknown): answer is Answer =>
  Value.Check(Success, answer) || Value.Check(Refusal, answer);

/** Recreates the error from the response. */
export function errorOf(answer: Exclude<Answer, { ok: true }>): Error {
  switch (answer.kind) {
    case "refused":
      return new ApiError(answer.code, {
        detail: answer.detail,
        extra: answer.extra as Record<string, unknown>,
        headers: answer.headers as Record<string, string>,
      });
    case "not-signed":
      return new NotSignedFor(answer.message);
    case "custody":
      return new CustodyError(answer.message);
    default:
      return new Error("the custody process failed; its log says why");
  }
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** JSON with bigints and bytes. A value that already uses one of their marker members is refused. */
export const encode = (value: unknown): string =>
  JSON.stringify(value, function (this: Record<string, unknown>, name, seen: unknown) {
    const raw = this[name];
    if (typeof raw === "bigint") return { $n: String(raw) };
    if (raw instanceof Uint8Array) return { $b: Buffer.from(raw).toString("base64") };
    if (isPlain(raw) && ("$n" in raw || "$b" in raw))
      throw new TypeError("a member is named $n or $b");
    return seen;
  });

export const decode = (text: string): unknown =>
  JSON.parse(text, (_name, value: unknown) => {
    if (!isPlain(value)) return value;
    if (typeof value["$n"] === "string") return BigInt(value["$n"]);
    if (typeof value["$b"] === "string") return new Uint8Array(Buffer.from(value["$b"], "base64"));
    return value;
  });
