// Goal: a protocol body is parsed strictly or refused with the protocol's reason, and parsing never throws.
import * as fc from "fast-check";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import t from "tap";
import { privateKeyToAccount } from "viem/accounts";
import { readPayment, SCHEMES, TOKEN_SCHEME } from "../../server/schemes/index.ts";
import { networkNameOf, splitPayload } from "../../server/schemes/scheme.ts";
import { ARC, BASE_SEPOLIA, bodyOf, NONCE, PAYEE, PAYER } from "./payment-samples.ts";

const NETWORKS = [ARC, BASE_SEPOLIA];
type Path = readonly string[];

/** The good body with one member replaced or removed. */
function altered(path: Path, value?: unknown): unknown {
  const body: unknown = structuredClone(bodyOf());
  let holder = body as Record<string, unknown>;
  for (const name of path.slice(0, -1)) holder = holder[name] as Record<string, unknown>;
  const last = path.at(-1) ?? "";
  if (value === undefined) delete holder[last];
  else holder[last] = value;
  return body;
}
const AUTHORIZATION: Path = ["paymentPayload", "payload", "authorization"];
const ACCEPTED: Path = ["paymentPayload", "accepted"];

t.test("a good body is read", async (t) => {
  const read = readPayment(bodyOf(), NETWORKS);
  if (!read.isValid) throw new Error(read.message);
  t.match(read.payment, {
    version: 2,
    network: { id: ARC.id },
    networkName: ARC.id,
    payTo: PAYEE.toLowerCase(),
    amountAtomic: 1_000n,
    authorization: {
      chainId: ARC.chainId,
      asset: ARC.usdc.address.toLowerCase(),
      from: PAYER.toLowerCase(),
      to: PAYEE.toLowerCase(),
      value: 1_000n,
      validAfter: 0n,
      validBefore: 2_000n,
      nonce: NONCE,
    },
    payer: PAYER,
  });
  t.equal(read.payment.scheme, TOKEN_SCHEME);
});

t.test("version 1 has its own names", async (t) => {
  const { paymentPayload, paymentRequirements } = bodyOf();
  const { amount, ...rest } = paymentRequirements;
  const v1 = (network: string) => ({
    x402Version: 1,
    paymentPayload: { x402Version: 1, scheme: "exact", network, payload: paymentPayload.payload },
    paymentRequirements: {
      ...rest,
      network,
      asset: BASE_SEPOLIA.usdc.address,
      maxAmountRequired: amount,
    },
  });
  t.match(readPayment(v1("base-sepolia"), NETWORKS), {
    isValid: true,
    payment: { version: 1, network: { id: BASE_SEPOLIA.id }, amountAtomic: 1_000n },
  });
  const noisy = v1("base-sepolia");
  Object.assign(noisy.paymentPayload, { payTo: PAYER, amount: "1", asset: PAYER });
  t.match(
    readPayment(noisy, NETWORKS),
    { payment: { acceptedMismatch: undefined } },
    "version 1 accepts no terms in the payload",
  );
  t.match(
    readPayment(v1(BASE_SEPOLIA.id), NETWORKS),
    { reason: "invalid_network" },
    "CAIP-2 names are of version 2",
  );
});

t.test("a payment into escrow is refused by name, as are its later steps", async (t) => {
  const { paymentRequirements } = bodyOf();
  const required = {
    ...paymentRequirements,
    network: ARC.id as `${string}:${string}`,
    scheme: "auth-capture",
    extra: {
      ...paymentRequirements.extra,
      captureAuthorizer: PAYEE,
      captureDeadline: 4_000_000_000,
      refundDeadline: 4_000_000_000,
      feeRecipient: PAYEE,
      minFeeBps: 0,
      maxFeeBps: 0,
    },
  };
  const account = privateKeyToAccount(NONCE);
  const { payload } = await new AuthCaptureEvmScheme(account).createPaymentPayload(2, required);
  for (const [each, payer] of [
    [payload, account.address],
    [{ type: "capture", amount: "1" }, undefined],
    [{ type: "void" }, undefined],
    [{ type: "refund", amount: "1" }, undefined],
  ] as const) {
    const presented = { x402Version: 2, accepted: required, payload: each };
    const body = { x402Version: 2, paymentPayload: presented, paymentRequirements: required };
    for (const purpose of ["verify", "settle"] as const)
      t.match(readPayment(body, NETWORKS, { purpose }), {
        isValid: false,
        reason: "unsupported_scheme",
        payer,
      });
  }
});

t.test("each fault has its reason", async (t) => {
  const wrong: [Path, unknown, string][] = [
    [["x402Version"], 3, "invalid_x402_version"],
    [["x402Version"], 1, "invalid_x402_version"],
    [["paymentPayload"], undefined, "invalid_payload"],
    [["paymentRequirements"], [], "invalid_payload"],
    [["paymentPayload", "payload"], "0x", "invalid_payload"],
    [["paymentPayload", "payload", "permit2Authorization"], {}, "invalid_payload"],
    [ACCEPTED, null, "invalid_payload"],
    [[...ACCEPTED, "scheme"], "upto", "invalid_exact_evm_scheme"],
    [["paymentRequirements", "scheme"], "batch-settlement", "unsupported_scheme"],
    [["paymentRequirements", "scheme"], "upto", "unsupported_payload_type"],
    [["paymentRequirements", "scheme"], 7, "invalid_exact_evm_scheme"],
    [["paymentRequirements", "extra"], undefined, "invalid_exact_evm_missing_eip712_domain"],
    [["paymentRequirements", "extra", "name"], "", "invalid_exact_evm_missing_eip712_domain"],
    [[...ACCEPTED, "network"], BASE_SEPOLIA.id, "invalid_exact_evm_network_mismatch"],
    [["paymentRequirements", "network"], 7, "invalid_exact_evm_network_mismatch"],
    [["paymentRequirements", "asset"], "nobody", "invalid_payload"],
    [["paymentRequirements", "amount"], "0", "invalid_payload"],
    [["paymentRequirements", "amount"], "1e3", "invalid_payload"],
    [["paymentRequirements", "amount"], 1000, "invalid_payload"],
    [["paymentRequirements", "payTo"], "0x12", "invalid_payload"],
    [[...AUTHORIZATION, "from"], "nobody", "invalid_payload"],
    [[...AUTHORIZATION, "to"], "nobody", "invalid_payload"],
    [AUTHORIZATION, null, "invalid_payload"],
    [[...AUTHORIZATION, "value"], "-1", "invalid_payload"],
    [[...AUTHORIZATION, "value"], (2n ** 256n).toString(), "invalid_payload"],
    [[...AUTHORIZATION, "validAfter"], undefined, "invalid_payload"],
    [[...AUTHORIZATION, "validBefore"], undefined, "invalid_payload"],
    [[...AUTHORIZATION, "nonce"], [NONCE], "invalid_payload"],
    [[...AUTHORIZATION, "nonce"], NONCE.slice(0, -1), "invalid_payload"],
    [["paymentPayload", "payload", "signature"], undefined, "invalid_payload"],
  ];
  for (const [path, value, reason] of wrong)
    t.match(
      readPayment(altered(path, value), NETWORKS),
      { isValid: false, reason },
      `${path.join(".")} = ${String(value)}`,
    );
  const later: [Path, unknown][] = [
    [["paymentRequirements", "payTo"], "0x12"],
    [[...AUTHORIZATION, "to"], "nobody"],
    [[...AUTHORIZATION, "value"], "-1"],
    [[...AUTHORIZATION, "nonce"], "0x"],
    [["paymentPayload", "payload", "signature"], undefined],
  ];
  for (const [path, value] of later)
    t.match(readPayment(altered(path, value), NETWORKS), { payer: PAYER }, path.join("."));
  const version3 = { ...bodyOf(), x402Version: 3 };
  version3.paymentPayload.x402Version = 3;
  t.match(readPayment(version3, NETWORKS), { reason: "invalid_x402_version" }, "on both sides");
  t.match(
    readPayment(bodyOf(), [BASE_SEPOLIA]),
    { reason: "invalid_network" },
    "not a served network",
  );
  t.match(
    readPayment(altered(["paymentRequirements", "extra"]), [BASE_SEPOLIA]),
    { reason: "invalid_network", payer: PAYER },
    "named before the shape is checked",
  );
  const nowhere = bodyOf() as { paymentPayload: { accepted: object }; paymentRequirements: object };
  for (const holder of [nowhere.paymentPayload.accepted, nowhere.paymentRequirements])
    Reflect.deleteProperty(holder, "network");
  t.match(readPayment(nowhere, NETWORKS), { reason: "invalid_exact_evm_network_mismatch" });
  const [first] = SCHEMES;
  const parts = splitPayload(bodyOf());
  if ("reason" in parts) throw new Error(parts.message);
  const context = { networks: [BASE_SEPOLIA], purpose: "verify", relayers: [] } as const;
  t.match(first.read(parts, context), { reason: "invalid_network" }, "asked on its own");
  t.equal(
    (
      readPayment(altered(["paymentRequirements", "scheme"], "batch-settlement"), NETWORKS) as {
        payer?: string;
      }
    ).payer,
    PAYER,
    "the payer is returned as soon as it is known",
  );
});

t.test("the accepted terms may omit members, but not contradict", async (t) => {
  const cases: [string, unknown, string | undefined][] = [
    ["payTo", undefined, undefined],
    ["payTo", PAYEE.toLowerCase(), undefined],
    ["payTo", PAYER, "payTo"],
    ["payTo", 7, "payTo"],
    ["amount", undefined, undefined],
    ["amount", "999", "amount"],
    ["asset", undefined, undefined],
    ["asset", PAYER, "asset"],
  ];
  for (const [name, value, acceptedMismatch] of cases)
    t.match(
      readPayment(altered([...ACCEPTED, name], value), NETWORKS),
      { isValid: true, payment: { acceptedMismatch } },
      `${name} = ${String(value)}`,
    );
});

t.test("no body makes the parser throw", async (t) => {
  const anyBody = fc.oneof(
    fc.jsonValue(),
    fc.record({
      x402Version: fc.constantFrom(1, 2, "2", null),
      paymentPayload: fc.oneof(
        fc.jsonValue(),
        fc.record({ accepted: fc.jsonValue(), payload: fc.jsonValue(), network: fc.jsonValue() }),
      ),
      paymentRequirements: fc.jsonValue(),
    }),
  );
  fc.assert(
    fc.property(anyBody, (body) => {
      const read = readPayment(body, NETWORKS);
      return !read.isValid && read.message !== "" && typeof networkNameOf(body) === "string";
    }),
    { numRuns: 500 },
  );
  t.equal(networkNameOf({ paymentPayload: { network: "base" } }), "base");
});
