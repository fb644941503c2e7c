// Checks the export of an audit: see check-an-audit.md. Written from server/plugins/audit by `npm run derive`: change that.

// server/plugins/audit/check-file.ts
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

// server/plugins/audit/verify.ts
import { createHash } from "node:crypto";
import { hashMessage, recoverAddress } from "viem";

// server/core/orders.ts
import { getAddress } from "viem";

// packages/paywall/src/money.ts
var USDC_DECIMALS = 6;
var ATOMIC_PER_USDC = 1000000n;
var DECIMAL_PATTERN = /^(0|[1-9][0-9]{0,39})(?:\.([0-9]{1,6}))?$/;
var MAX_UINT256 = (1n << 256n) - 1n;
function parseDecimal(text2) {
  if (typeof text2 !== "string") return { ok: false, reason: 'must be a string such as "1.50"' };
  const match = DECIMAL_PATTERN.exec(text2);
  if (!match) {
    return {
      ok: false,
      reason: 'must be a plain decimal such as "1.50": digits, at most 6 decimals, no sign, exponent or spaces'
    };
  }
  const whole = BigInt(match[1] ?? "0");
  const fraction = BigInt((match[2] ?? "").padEnd(USDC_DECIMALS, "0"));
  const atomic = whole * ATOMIC_PER_USDC + fraction;
  return { ok: true, atomic };
}
function formatAtomic(atomic) {
  const sign = atomic < 0n ? "-" : "";
  const value = atomic < 0n ? -atomic : atomic;
  const fraction = (value % ATOMIC_PER_USDC).toString().padStart(USDC_DECIMALS, "0").replace(/0+$/, "");
  const whole = (value / ATOMIC_PER_USDC).toString();
  return fraction === "" ? `${sign}${whole}` : `${sign}${whole}.${fraction}`;
}
function parseAtomic(text2) {
  if (typeof text2 !== "string" || !/^(0|[1-9][0-9]{0,77})$/.test(text2)) return void 0;
  const atomic = BigInt(text2);
  return atomic <= MAX_UINT256 ? atomic : void 0;
}

// server/core/rules.ts
var payeeKey = ({ address: address2, site }) => `${address2} ${site}`;
function termsAt(payees) {
  const listed = new Map(payees.map((payee) => [payeeKey(payee), payee]));
  return (place) => listed.get(payeeKey(place)) ?? listed.get(payeeKey({ ...place, site: "" }));
}
var sitesOf = (payees) => new Set(payees.map(({ site }) => site).filter((site) => site !== ""));
var isMore = (wanted, current) => current !== null && (wanted === null || wanted > current);
function loosens(current, wanted) {
  if (current.status !== "active" && wanted.status === "active") return true;
  if (current.status === "archived" && wanted.status !== "archived") return true;
  if (current.fetch === "sites" && wanted.fetch === "any") return true;
  const reachable = sitesOf(current.payees);
  if (current.fetch === "sites" && wanted.payees.some(({ site }) => site && !reachable.has(site)))
    return true;
  const before = termsAt(current.payees);
  const after = termsAt(wanted.payees);
  return isMore(wanted.dailyLimitAtomic, current.dailyLimitAtomic) || isMore(wanted.weeklyLimitAtomic, current.weeklyLimitAtomic) || isMore(wanted.monthlyLimitAtomic, current.monthlyLimitAtomic) || isMore(wanted.perPaymentLimitAtomic, current.perPaymentLimitAtomic) || isMore(wanted.paymentsPerHour, current.paymentsPerHour) || isMore(wanted.expiresAtSeconds, current.expiresAtSeconds) || // An entry may also loosen by its removal: without its own terms, a site has those for everywhere.
  [...current.payees, ...wanted.payees].some((place) => payeeLoosens(before(place), after(place)));
}
function payeeLoosens(current, wanted) {
  if (wanted === void 0) return false;
  if (current === void 0) return true;
  return isMore(wanted.dailyLimitAtomic, current.dailyLimitAtomic) || isMore(wanted.perPaymentLimitAtomic, current.perPaymentLimitAtomic) || isMore(wanted.expiresAtSeconds, current.expiresAtSeconds);
}

// server/core/keccak.ts
import { keccak256 } from "viem";
var keccak = (bytes) => keccak256(bytes, "bytes");

// server/core/typed-data.ts
function typedDataDigest(domain, message) {
  const parts = [domain, message].map(
    ({ structs, name, value }) => hashStruct(structs, name, value)
  );
  const digest = keccak(Buffer.concat([Buffer.from([25, 1]), ...parts]));
  return `0x${Buffer.from(digest).toString("hex")}`;
}
var WORD = 32;
function hashStruct(structs, name, value) {
  const words = (structs[name] ?? []).map(
    (field) => wordOf(structs, field.type, value[field.name])
  );
  return keccak(Buffer.concat([typeHash(structs, name), ...words]));
}
function wordOf(structs, type, member) {
  if (type.endsWith("[]")) {
    const items = member;
    return keccak(Buffer.concat(items.map((item) => hashStruct(structs, type.slice(0, -2), item))));
  }
  if (type === "string") return keccak(Buffer.from(member));
  const digits = type === "uint256" ? BigInt(member).toString(16).padStart(64, "0") : member.slice(2);
  const word = Buffer.from(type === "address" ? `${"0".repeat(24)}${digits}` : digits, "hex");
  if (digits.length !== (type === "address" ? 40 : 64) || word.length !== WORD)
    throw new Error(`the order has a malformed ${type}, so it has no digest`);
  return word;
}
var typeHashes = /* @__PURE__ */ new Map();
function typeHash(structs, name) {
  const known = typeHashes.get(name);
  if (known) return known;
  const fields = structs[name] ?? [];
  const listed = fields.filter(({ type }) => type.endsWith("[]")).map(({ type }) => type.slice(0, -2));
  const written = [name, ...listed.toSorted()].map((struct) => {
    const members = (structs[struct] ?? []).map((field) => `${field.type} ${field.name}`);
    return `${struct}(${members.join(",")})`;
  });
  const hash = keccak(Buffer.from(written.join("")));
  typeHashes.set(name, hash);
  return hash;
}

// server/core/orders.ts
var MAX_ORDER_SECONDS = 15 * 60;
var APPROVAL_SECONDS = 60 * 60;
var ABSENT = (1n << 256n) - 1n;
var text = (name) => ({ name, type: "string" });
var number = (name) => ({ name, type: "uint256" });
var address = (name) => ({ name, type: "address" });
var SINGLE_USE = [{ name: "nonce", type: "bytes32" }, number("deadline")];
var ORDER_TYPES = {
  AgentPolicy: {
    AgentPolicy: [
      text("agent"),
      address("wallet"),
      number("version"),
      text("name"),
      number("dailyLimit"),
      number("weeklyLimit"),
      number("monthlyLimit"),
      number("perPaymentLimit"),
      number("paymentsPerHour"),
      text("fetch"),
      number("expiresAt"),
      { name: "payees", type: "Payee[]" },
      ...SINGLE_USE
    ],
    Payee: [
      address("payee"),
      text("label"),
      text("site"),
      number("dailyLimit"),
      number("perPaymentLimit"),
      number("expiresAt")
    ]
  },
  IssueKey: {
    IssueKey: [text("agent"), address("wallet"), text("label"), number("expiresAt"), ...SINGLE_USE]
  },
  ApprovePayment: {
    ApprovePayment: [
      text("agent"),
      address("payee"),
      address("asset"),
      number("maxAmount"),
      text("site"),
      text("approvalId"),
      ...SINGLE_USE
    ]
  },
  Withdraw: {
    Withdraw: [address("wallet"), address("to"), address("asset"), number("amount"), ...SINGLE_USE]
  },
  SecondWallet: {
    SecondWallet: [address("owner"), address("second"), number("secondChain"), ...SINGLE_USE]
  },
  MoveOwner: { MoveOwner: [address("from"), address("to"), ...SINGLE_USE] }
};
var DOMAIN_TYPE = [text("name"), text("version"), number("chainId")];
var domainOf = (chainId) => ({ name: "Purser", version: "2", chainId });
var orderDigest = (kind, order, chainId) => typedDataDigest(
  { structs: { EIP712Domain: DOMAIN_TYPE }, name: "EIP712Domain", value: domainOf(chainId) },
  { structs: ORDER_TYPES[kind], name: kind, value: order }
);
function readOrder(kind, wire) {
  const types = ORDER_TYPES[kind];
  const struct = (name, value) => {
    const read = {};
    for (const field of types[name] ?? []) {
      const member = value[field.name];
      const found = member === void 0 ? void 0 : one(field.type, member);
      if (found === void 0) return void 0;
      read[field.name] = found;
    }
    return read;
  };
  const one = (type, member) => {
    if (type.endsWith("[]")) {
      const items = member.map((item) => struct(type.slice(0, -2), item));
      return items.includes(void 0) ? void 0 : items;
    }
    const given = String(member);
    if (type === "uint256") return parseAtomic(given)?.toString();
    if (type === "bytes32")
      return /^0x[0-9a-fA-F]{64}$/.test(given) ? given.toLowerCase() : void 0;
    if (type !== "address") return given;
    return /^0x[0-9a-fA-F]{40}$/.test(given) ? getAddress(given.toLowerCase()) : void 0;
  };
  return struct(kind, wire);
}
var fromWire = (value) => {
  const number2 = BigInt(value);
  return number2 === ABSENT ? null : number2;
};
var rulesOfPolicy = (order) => ({
  dailyLimitAtomic: BigInt(order.dailyLimit),
  weeklyLimitAtomic: fromWire(order.weeklyLimit),
  monthlyLimitAtomic: fromWire(order.monthlyLimit),
  perPaymentLimitAtomic: fromWire(order.perPaymentLimit),
  paymentsPerHour: fromWire(order.paymentsPerHour),
  // Fail safe: every other value restricts the agent to sites.
  fetch: order.fetch === "any" ? "any" : "sites",
  expiresAtSeconds: fromWire(order.expiresAt),
  payees: order.payees.map((payee) => ({
    address: payee.payee.toLowerCase(),
    label: payee.label,
    site: payee.site,
    dailyLimitAtomic: fromWire(payee.dailyLimit),
    perPaymentLimitAtomic: fromWire(payee.perPaymentLimit),
    expiresAtSeconds: fromWire(payee.expiresAt)
  }))
});
var CONNECTION_LABEL = "Connection to ";

// server/plugins/audit/authority.ts
var SIGNED_AS = {
  "session.created": "message",
  "policy.signed": "AgentPolicy",
  "key.signed": "IssueKey",
  "payment.approved": "ApprovePayment",
  "withdrawal.ordered": "Withdraw",
  "second.named": "SecondWallet",
  "owner.moved": "MoveOwner",
  "owner.received": "MoveOwner"
};
var AFTER_ORDER = {
  "agent.created": "AgentPolicy",
  "agent.resumed": "AgentPolicy",
  "key.created": "IssueKey",
  "key.rotated": "IssueKey",
  "connection.granted": "IssueKey",
  "approval.granted": "ApprovePayment"
};
var OTHER = "differs from its signed order";
var UNFOUNDED = "does not follow from the rules in force before it";
var Authority = class {
  #used = /* @__PURE__ */ new Set();
  #agents = /* @__PURE__ */ new Map();
  #withdrawals = /* @__PURE__ */ new Map();
  /** The order of the previous entry, until the entry that it permits. */
  #open;
  /** The recovery wallet that the owner named last. */
  second;
  /** Undefined if the entry is valid. The signer and the digest of `signed` were verified before. */
  faultOf(body, signed) {
    const { action } = body;
    const needed = SIGNED_AS[action];
    if (needed !== signed?.kind)
      return signed === void 0 ? `is ${action} without a signature` : `is ${action}, with the signature of a different action`;
    const open = this.#open;
    this.#open = void 0;
    try {
      return signed ? this.#signedFault(body, signed) : this.#unsignedFault(body, open);
    } catch {
      return "has content that cannot be read";
    }
  }
  #signedFault(body, signed) {
    if (this.#used.has(signed.digest)) return "has a signature that was used before";
    this.#used.add(signed.digest);
    if (signed.kind === "message") return signInFault(body, signed);
    const { order, kind, chainId } = signed;
    const after = body.after ?? {};
    const { agent = body.agentId } = order;
    const isSame = agent === body.agentId && (kind === "MoveOwner" || after["nonce"] === order.nonce);
    if (!isSame) return OTHER;
    if ("wallet" in order && !this.#hasWallet(body.agentId, order.wallet)) return OTHER;
    if (kind === "AgentPolicy") return this.#usePolicy(body, signed);
    if (kind === "Withdraw") {
      const { to, amount: amountAtomic, nonce } = order;
      const facts = { to: to.toLowerCase(), amountAtomic, network: `eip155:${chainId}`, nonce };
      this.#withdrawals.set(asText(after["paymentId"]), facts);
      return holds(facts, after) ? void 0 : OTHER;
    }
    if (kind === "SecondWallet") {
      this.second = { address: order.second.toLowerCase(), chainId: Number(order.secondChain) };
      return isAddress(order.owner, body.owner) ? void 0 : OTHER;
    }
    if (kind === "MoveOwner") return this.#move(body, order);
    this.#open = signed;
    return void 0;
  }
  #usePolicy({ agentId, after }, signed) {
    if (after?.["version"] !== Number(signed.order.version)) return OTHER;
    const { payees, rules, hasUnnamedRemovals, ...known } = this.#agent(agentId);
    const isNew = signed.order.version === "1";
    const isKnown = isNew || rules !== void 0 && hasUnnamedRemovals !== true;
    this.#agents.set(agentId ?? "", {
      ...known,
      ...factsOf(signed.order),
      ...isKnown && { formerPayees: payees }
    });
    this.#open = signed;
    return void 0;
  }
  #move({ action, owner, before, after }, order) {
    const agents = after?.["agents"] ?? [];
    const isSame = before?.["owner"] === order.from && after?.["owner"] === order.to;
    const own = action === "owner.moved" ? order.from : order.to;
    if (!isSame || !isAddress(own, owner)) return OTHER;
    for (const id of agents)
      if (action === "owner.moved") this.#agents.delete(id);
      else this.#agents.set(id, { isReceived: true, status: "paused", payees: [] });
    return void 0;
  }
  #unsignedFault(body, open) {
    const { action, agentId, after } = body;
    const needed = AFTER_ORDER[action];
    const order = open && "order" in open ? open.order : void 0;
    const isOpen = order !== void 0 && order.agent === agentId;
    if (needed !== void 0) {
      if (!isOpen || open?.kind !== needed) return `is ${action} without a signed order`;
      return this.#permittedFault(body, open);
    }
    if (/^(agent\.updated$|allowlist\.)/.test(action)) {
      if (isOpen) this.#open = open;
      return this.#changeFault(body, isOpen ? open : void 0);
    }
    if (action === "agent.paused" || action === "agent.archived") {
      const known = this.#agents.get(agentId ?? "");
      if (known) known.status = action === "agent.paused" ? "paused" : "archived";
    }
    if (action.startsWith("withdrawal.")) {
      const ordered = this.#withdrawals.get(asText(after?.["paymentId"]));
      if (ordered === void 0)
        return this.#agent(agentId).isReceived ? void 0 : `is ${action} without an order`;
      return holds(ordered, after ?? {}) ? void 0 : "differs from its order";
    }
    return void 0;
  }
  /** Checks an action that the order of the previous entry permits. */
  #permittedFault(body, open) {
    const { action, agentId } = body;
    const after = body.after ?? {};
    if (open.kind === "IssueKey") return keyFault(action, after, open.order);
    if (open.kind === "ApprovePayment") {
      const { approvalId, payee, maxAmount, site, nonce: orderNonce } = open.order;
      const amount = formatAtomic(BigInt(maxAmount));
      const facts2 = { approvalId, payee, amount, site: site || null, orderNonce };
      return holds({ ...facts2, network: `eip155:${open.chainId}` }, after) ? void 0 : OTHER;
    }
    if (open.kind !== "AgentPolicy") return OTHER;
    const agent = this.#agent(agentId);
    agent.status = "active";
    if (action === "agent.resumed") return after["status"] === "active" ? void 0 : OTHER;
    const { wallet: walletAddress, version } = open.order;
    const facts = { ...agent.rules, walletAddress, network: `eip155:${open.chainId}` };
    const isListed = "allowlist" in after ? isSameList(after["allowlist"], agent.payees) : saysChange(body, difference([], agent.payees), open.digest);
    const isSame = holds(facts, after) && isListed;
    return isSame && version === "1" && after["status"] === "active" ? void 0 : OTHER;
  }
  /** A change must equal the policy of the previous entry, or only tighten the rules in force. */
  #changeFault(body, order) {
    const { action, agentId, before, after } = body;
    const agent = this.#agents.get(agentId ?? "");
    if (!agent) return "is about an agent that never belonged to this owner";
    const { rules, payees } = agent;
    if (rules === void 0) return void 0;
    if (action === "agent.updated") {
      if (order && holds(after ?? {}, rules)) return void 0;
      const isFrom = holds(before ?? {}, rules) && Object.keys(after ?? {}).every((key) => key in rules);
      const wanted = { ...agent, rules: { ...rules, ...after } };
      return isFrom ? this.#tighten(body, { from: agent, to: wanted }) : UNFOUNDED;
    }
    if (order && isSignedChange(body, agent, order)) return void 0;
    const change = changeIn(body);
    if (change === void 0) {
      if (!countsRemovals(body)) return UNFOUNDED;
      this.#agents.set(agentId ?? "", { ...agent, hasUnnamedRemovals: true });
      return void 0;
    }
    const from = agent.hasUnnamedRemovals ? change.before : payees;
    const texts = new Set(from.map(textOf));
    if (!change.before.every((payee) => texts.has(textOf(payee)))) return UNFOUNDED;
    const gone = new Set(change.before.map(keyOf));
    const kept = from.filter((payee) => !gone.has(keyOf(payee)));
    const to = [...kept, ...change.after];
    if (new Set(to.map(keyOf)).size < to.length) return UNFOUNDED;
    return this.#tighten(body, { from: { ...agent, payees: from }, to: { ...agent, payees: to } });
  }
  #tighten({ action, agentId, after }, { from, to }) {
    const isRemoval = action === "allowlist.removed" && listIn(after).length === 0;
    if (!isRemoval && loosens(rulesOf(from), rulesOf(to)))
      return `is ${action} without a signed order, and it loosens the rules`;
    this.#agents.set(agentId ?? "", to);
    return void 0;
  }
  #agent(id) {
    return this.#agents.get(id ?? "") ?? { status: "paused", payees: [] };
  }
  /** An agent keeps its wallet forever. */
  #hasWallet(id, wallet) {
    const agent = this.#agent(id);
    const isSame = (agent.wallet ?? wallet) === wallet;
    this.#agents.set(id ?? "", { ...agent, wallet });
    return isSame;
  }
};
var SIGN_IN = / wants you to sign in with your Ethereum account:$/;
function signInFault({ actor }, { message, signer }) {
  const [first = "", address2 = ""] = message.split("\n");
  const isSignIn = SIGN_IN.test(first) && isAddress(address2, signer) && isAddress(actor, signer);
  return isSignIn ? void 0 : "has a signature that is not of a sign-in";
}
function keyFault(action, after, order) {
  const isConnection = order.label.startsWith(CONNECTION_LABEL);
  const isSame = after["label"] === order.label && after["expiresAt"] === timeOf(fromWire(order.expiresAt));
  return isSame && isConnection === (action === "connection.granted") ? void 0 : OTHER;
}
var isAddress = (left, right) => left.toLowerCase() === right.toLowerCase();
var holds = (facts, other) => Object.entries(facts).every(([name, value]) => other[name] === value);
var timeOf = (seconds) => seconds === null ? null : new Date(Number(seconds) * 1e3).toISOString();
var amountOf = (atomic) => atomic === null ? null : formatAtomic(atomic);
function factsOf(order) {
  const rules = rulesOfPolicy(order);
  return {
    rules: {
      name: order.name,
      dailyLimit: amountOf(rules.dailyLimitAtomic),
      weeklyLimit: amountOf(rules.weeklyLimitAtomic),
      monthlyLimit: amountOf(rules.monthlyLimitAtomic),
      perPaymentLimit: amountOf(rules.perPaymentLimitAtomic),
      paymentsPerHour: rules.paymentsPerHour === null ? null : Number(rules.paymentsPerHour),
      fetch: rules.fetch,
      expiresAt: timeOf(rules.expiresAtSeconds)
    },
    payees: rules.payees.map((payee) => ({
      address: payee.address,
      label: payee.label,
      site: payee.site,
      dailyLimit: amountOf(payee.dailyLimitAtomic),
      perPaymentLimit: amountOf(payee.perPaymentLimitAtomic),
      expiresAt: timeOf(payee.expiresAtSeconds)
    }))
  };
}
function asText(value) {
  if (typeof value !== "string") throw new TypeError("a field of an entry is not text");
  return value;
}
var addressOf = ({ address: address2 }) => asText(address2).toLowerCase();
var keyOf = (payee) => payeeKey({ address: addressOf(payee), site: asText(payee["site"]) });
var textOf = (payee) => {
  const { label, site, dailyLimit, perPaymentLimit, expiresAt } = payee;
  return JSON.stringify([addressOf(payee), label, site, dailyLimit, perPaymentLimit, expiresAt]);
};
function difference(before, after) {
  const [old, now] = [before, after].map((list) => new Set(list.map(textOf)));
  return {
    before: before.filter((payee) => !now.has(textOf(payee))),
    after: after.filter((payee) => !old.has(textOf(payee)))
  };
}
function listIn(side) {
  if (side === null) return [];
  if ("address" in side) return [side];
  return side["payees"] ?? side["allowlist"] ?? [];
}
var isNamed = ({ before, after }) => [before, after].some(
  (side) => ["address", "payees", "allowlist"].some((name) => name in (side ?? {}))
);
function changeIn(body) {
  if (!isNamed(body)) return void 0;
  const [before, after] = [listIn(body.before), listIn(body.after)];
  if ("allowlist" in (body.after ?? {})) return { before, after };
  return hasCounts(body, { before, after }) ? { before, after } : void 0;
}
var COUNTS = ["added", "removed", "changed"];
function countsOf({ before, after }) {
  const known = new Set(before.map(keyOf));
  const changed = after.filter((payee) => known.has(keyOf(payee))).length;
  return { added: after.length - changed, removed: before.length - changed, changed };
}
function hasCounts({ before, after }, change) {
  if ([before, after].some((side) => "address" in (side ?? {}))) return true;
  const counts = countsOf(change);
  return COUNTS.every((name) => (after?.[name] ?? 0) === counts[name]);
}
var countsRemovals = ({ action, before, after }) => action !== "allowlist.added" && before === null && after?.["added"] === void 0 && after?.["order"] === void 0 && [after?.["removed"], after?.["changed"]].some((count) => Number.isSafeInteger(count));
function saysChange(body, change, digest) {
  const { before, after } = body;
  const isSame = !isNamed(body) || isSameList(listIn(before), change.before) && isSameList(listIn(after), change.after);
  return isSame && hasCounts(body, change) && after?.["order"] === digest;
}
function isSignedChange(body, { payees, formerPayees }, { digest }) {
  const { action, before, after } = body;
  if ("allowlist" in (after ?? {})) return isSameList(listIn(after), payees);
  if (action === "allowlist.replaced") {
    if (formerPayees) return saysChange(body, difference(formerPayees, payees), digest);
    const texts = new Set(payees.map(textOf));
    return after?.["order"] === digest && listIn(after).every((payee) => texts.has(textOf(payee)));
  }
  const [gone, now] = [listIn(before), listIn(after)];
  if (now.length === 0)
    return gone.every((one) => payees.every((payee) => keyOf(payee) !== keyOf(one)));
  return now.every((one) => payees.some((payee) => textOf(payee) === textOf(one)));
}
function isSameList(list, payees) {
  const texts = (all) => all.map(textOf).toSorted().join("\n");
  return Array.isArray(list) && texts(list) === texts(payees);
}
function atomicOf(text2) {
  if (text2 === null) return null;
  const parsed = parseDecimal(text2);
  if (!parsed.ok) throw new RangeError(parsed.reason);
  return parsed.atomic;
}
var secondsOf = (time) => time === null ? null : BigInt(Math.floor(Date.parse(asText(time)) / 1e3));
function rulesOf({ status, rules = {}, payees }) {
  const perHour = rules["paymentsPerHour"];
  return {
    status,
    dailyLimitAtomic: atomicOf(rules["dailyLimit"]) ?? 0n,
    weeklyLimitAtomic: atomicOf(rules["weeklyLimit"]),
    monthlyLimitAtomic: atomicOf(rules["monthlyLimit"]),
    perPaymentLimitAtomic: atomicOf(rules["perPaymentLimit"]),
    paymentsPerHour: perHour === null ? null : BigInt(perHour),
    fetch: rules["fetch"] === "any" ? "any" : "sites",
    expiresAtSeconds: secondsOf(rules["expiresAt"]),
    payees: payees.map((payee) => ({
      address: addressOf(payee),
      label: asText(payee["label"]),
      site: asText(payee["site"]),
      dailyLimitAtomic: atomicOf(payee["dailyLimit"]),
      perPaymentLimitAtomic: atomicOf(payee["perPaymentLimit"]),
      expiresAtSeconds: secondsOf(payee["expiresAt"])
    }))
  };
}

// server/plugins/audit/verify.ts
async function verifyChain(rows, noted2 = []) {
  let head = { seq: 0, hash: "0".repeat(64) };
  let ownerId = null;
  let owner;
  const counted = { signatures: 0, byContract: 0 };
  const authority = new Authority();
  for await (const row of rows) {
    const no = (why) => ({ ok: false, seq: head.seq + 1, why });
    const broken = linkFault(row, head);
    if (broken !== void 0) return no(broken);
    const body = readBody(row.body);
    if (body === void 0) return no("its text is not a valid entry");
    ownerId ??= body.ownerId;
    owner ??= { address: body.owner, chainId: body.ownerChainId };
    if (body.owner !== owner.address || body.ownerChainId !== owner.chainId)
      return no("it names a different owner wallet");
    const read = readSigned(row, body.proof);
    const fault = bodyFault(row, body, ownerId) ?? ("fault" in read ? read.fault : void 0) ?? await signersFault(body, read.signed, authority.second, counted) ?? authority.faultOf(body, read.signed);
    if (fault !== void 0) return no(fault);
    head = { seq: row.seq, hash: row.hash };
    if (noted2.some(({ seq, hash }) => seq === row.seq && hash !== row.hash))
      return otherHash(row.seq);
  }
  const { signatures, byContract } = counted;
  return cutFault(head, noted2) ?? { ok: true, head, signatures, byContract, ownerId };
}
var otherHash = (seq) => ({
  ok: false,
  seq,
  why: "its hash differs from the one noted earlier"
});
function cutFault(head, noted2) {
  const last = Math.max(0, ...noted2.map(({ seq }) => seq));
  return last > head.seq ? {
    ok: false,
    seq: head.seq + 1,
    why: `is missing: entry ${last} was noted earlier, and the chain ends before it`
  } : void 0;
}
function linkFault(row, before) {
  if (row.seq !== before.seq + 1) return `is missing: entry ${row.seq} is in its place`;
  if (row.prevHash !== before.hash) return "does not follow the entry before it";
  const hash = createHash("sha256").update(Buffer.from(row.prevHash, "hex")).update(row.body, "utf8");
  return hash.digest("hex") === row.hash ? void 0 : "its hash does not match its text";
}
function readBody(text2) {
  try {
    const body = JSON.parse(text2);
    return typeof body === "object" && body !== null ? body : void 0;
  } catch {
    return void 0;
  }
}
function bodyFault({ seq, columns }, body, ownerId) {
  if (body.seq !== seq) return `its text belongs to entry ${body.seq}`;
  if (body.ownerId !== ownerId) return "its text belongs to a different owner's chain";
  if (columns === void 0) return void 0;
  const isSame = columns.id === body.id && columns.agentId === body.agentId && columns.action === body.action && // A JavaScript date has milliseconds, the text microseconds.
  columns.at.toISOString().slice(0, 23) === body.at.slice(0, 23);
  return isSame ? void 0 : "its columns differ from its text";
}
var BY_SECOND = /* @__PURE__ */ new Set(["session.created", "withdrawal.ordered"]);
async function signersFault({ proof, action, owner, ownerChainId }, signed, second, counted) {
  if (proof === null || signed === void 0) return void 0;
  const signers = proof.kind === "message" ? [proof] : proof.signers;
  const is = (wallet) => (by) => by.signer === wallet?.address && by.chainId === wallet.chainId;
  const isOwners = signers.some(is({ address: owner, chainId: ownerChainId }));
  const isSeconds = BY_SECOND.has(action) && signers.some(is(second));
  if (!isOwners && !isSeconds) return "its owner did not sign it";
  if (!isOwners && signed.kind === "Withdraw" && signed.order.to.toLowerCase() !== owner)
    return "the recovery wallet can withdraw only to the owner's address";
  const parties = signed.kind === "MoveOwner" ? [signed.order.from, signed.order.to] : [];
  if (parties.some((party) => !signers.some(({ signer }) => signer === party.toLowerCase())))
    return "both wallets must sign it";
  for (const { signer, chainId, signature } of signers) {
    counted.signatures += 1;
    if (chainId !== 0) counted.byContract += 1;
    else if (await recovered(signed.digest, signature) !== signer)
      return `its signature is not by ${signer}`;
  }
  return void 0;
}
function readSigned(row, proof) {
  if (proof === null) return { signed: void 0 };
  if (proof.kind === "message") {
    const { kind, message, signer } = proof;
    return { signed: { kind, message, signer, digest: hashMessage(message) } };
  }
  const beside = proof.order ?? row.order;
  if (beside === void 0) return { fault: "its order is missing" };
  try {
    const { primaryType, domain, message } = beside;
    const order = primaryType in ORDER_TYPES ? readOrder(primaryType, message) : void 0;
    if (order === void 0) return { fault: "its order is not an order of this service" };
    const digest = orderDigest(primaryType, order, domain.chainId);
    return digest === proof.digest ? { signed: { kind: primaryType, order, digest, chainId: domain.chainId } } : { fault: "its order does not have the digest that it names" };
  } catch {
    return { fault: "its order cannot be read" };
  }
}
async function recovered(hash, signature) {
  try {
    return (await recoverAddress({ hash, signature })).toLowerCase();
  } catch {
    return void 0;
  }
}
function readLine(text2) {
  try {
    const { seq, prevHash, hash, body, order } = JSON.parse(text2);
    const isRow = Number.isSafeInteger(seq) && [prevHash, hash, body].every((part) => typeof part === "string");
    if (!isRow) return void 0;
    return { seq, prevHash, hash, body, ...order === void 0 ? {} : { order } };
  } catch {
    return void 0;
  }
}

// server/plugins/audit/check-file.ts
async function verifyFile(path2, noted2, say) {
  const unreadable = [];
  async function* rows() {
    let number2 = 0;
    for await (const line2 of createInterface({ input: createReadStream(path2) })) {
      number2 += 1;
      const row = readLine(line2);
      if (row) yield row;
      else unreadable.push(number2);
    }
  }
  const verdict = await verifyChain(rows(), noted2);
  const [line] = unreadable;
  if (line === void 0) return report(path2, verdict, say);
  say(`FAILED ${path2}: line ${line} is no line of an audit's export`);
  return false;
}
function report(whose, verdict, say) {
  if (!verdict.ok) say(`FAILED ${whose}: entry ${verdict.seq} ${verdict.why}`);
  else {
    const { head, signatures, byContract } = verdict;
    const unchecked = byContract === 0 ? "" : `, ${byContract} by contracts not recomputed`;
    say(`ok ${whose}: ${head.seq} entries, ${signatures} signatures${unchecked}`);
    say(`   head ${head.seq}:${head.hash}`);
  }
  return verdict.ok;
}
function readHead(text2) {
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text2) ?? [];
  return seq === void 0 || hash === void 0 ? void 0 : { seq: Number(seq), hash };
}

// server/plugins/audit/check-audit.ts
var [path, ...heads] = process.argv.slice(2);
var noted = heads.flatMap((text2) => readHead(text2) ?? []);
if (path === void 0 || noted.length < heads.length) {
  console.error("node check-audit.mjs <export> [<seq>:<hash of 64 hex digits> ...]");
  process.exitCode = 2;
} else if (!await verifyFile(path, noted, (line) => console.log(line))) process.exitCode = 1;
