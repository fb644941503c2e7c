/**
 * What the chain says about an offer, without moving money: whether payee and token are contracts, whether the token's
 * domain fits, and whether a payment would pass. That payment is signed by a new key without money and goes to our own
 * verify only, never to the seller.
 */
import { bytesToHex, encodeFunctionData, parseAbi, type Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { randomBytes } from "node:crypto";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { separatorOf } from "../../core/separators.ts";
import { callAs, readCodeSizes, readDomain } from "../../infra/chain/contracts.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Finding, Simulation } from "../../schemas/validate.ts";
import { REASONS } from "../../schemes/scheme.ts";
import { findScheme, TOKEN_SCHEME, TRANSFER_TYPES } from "../../schemes/index.ts";
import type { PaymentResult } from "../facilitator/verify.ts";
import { finding } from "./causes.ts";
import type { CheckedOffer } from "./offers.ts";

type Rpc = Pick<ChainRpc, "call">;

interface Deps {
  rpcOf(networkId: string): Rpc | undefined;
  /** The facilitator's check, which counts and stores nothing. */
  check(body: unknown): Promise<PaymentResult>;
}

export interface OnChain {
  simulation: Simulation;
  findings: Finding[];
}

const notRun = (why: string): Simulation => ({ result: "not_run", why });

export async function checkOnChain(deps: Deps, offer: CheckedOffer): Promise<OnChain> {
  const { network, isConfigured, payTo, asset, where, number } = offer;
  const rpc = network && isConfigured ? deps.rpcOf(network.id) : undefined;
  if (!rpc)
    return { simulation: notRun("This service is not set up for the network."), findings: [] };
  try {
    const addresses = [payTo, asset].filter((address) => address !== undefined);
    const sizes = await readCodeSizes(rpc, addresses);
    const findings: Finding[] = [];
    const hasCode = (address: Address | undefined): boolean =>
      address !== undefined && (sizes.get(address) ?? 0n) > 0n;
    if (hasCode(payTo) && payTo !== asset)
      findings.push(finding("payee_is_contract", `${where}.payTo`, { offer: number }));
    if (asset && !hasCode(asset))
      findings.push(finding("asset_no_contract", `${where}.asset`, { offer: number }));
    else if (asset && !offer.isUsdc) findings.push(...(await checkDomain(rpc, offer, asset)));
    const isPaid = payTo !== undefined && asset !== undefined && offer.isUsdc && payTo !== asset;
    if (isPaid && !(await canReceive(rpc, asset, payTo))) {
      const refused = finding("payee_refused", `${where}.payTo`, { offer: number });
      const simulation: Simulation = { result: "refused", why: refused.message };
      return { simulation, findings: [...findings, refused] };
    }
    const { simulation, findings: more } = await simulate(deps, offer);
    return { simulation, findings: [...findings, ...more] };
  } catch (error) {
    if (classifyChainError(error).kind !== "unreachable") throw error;
    return {
      simulation: notRun("The network could not be read."),
      findings: [finding("chain_not_read", where, { offer: number })],
    };
  }
}

const TRANSFER_GAS = 150_000n;
const TRANSFER = parseAbi(["function transfer(address to, uint256 value) returns (bool)"]);

/** Whether the token moves nothing to this payee: a blocked one gets not even that. */
async function canReceive(rpc: Rpc, token: Address, payTo: Address): Promise<boolean> {
  const data = encodeFunctionData({ abi: TRANSFER, args: [payTo, 0n] });
  const call = { target: token, data };
  return (await callAs(rpc, MULTICALL3_ADDRESS, call, { gas: TRANSFER_GAS })).success;
}

async function checkDomain(
  rpc: Rpc,
  { extra, network, where, number }: CheckedOffer,
  asset: Address,
): Promise<Finding[]> {
  const { name, version } = extra;
  if (!network || typeof name !== "string" || typeof version !== "string") return [];
  const actual = await readDomain(rpc, asset);
  const { chainId } = network;
  const expected = separatorOf({ name, version, chainId, verifyingContract: asset });
  if (actual === undefined || actual === expected) return [];
  return [finding("domain_mismatch", `${where}.extra`, { offer: number })];
}

const FOR_SECONDS = 60n;

async function simulate(deps: Deps, offer: CheckedOffer): Promise<OnChain> {
  const { extra, where, number, findings: known } = offer;
  const body = await paymentFor(offer);
  if (!body) {
    const why = "Only plain payments in USDC (scheme exact, EIP-3009) are simulated.";
    return { simulation: notRun(why), findings: [] };
  }
  const checked = await deps.check(body);
  if (checked.isValid || checked.reason === "invalid_exact_evm_insufficient_balance")
    return {
      simulation: { result: "holds", why: "Everything but the balance holds." },
      findings: [],
    };
  const why = checked.message;
  const simulation: Simulation = { result: "refused", why };
  // The cause was found already, or is only our own facilitator's.
  const isKnown = known.some(({ severity }) => severity === "error") || extra["name"] === undefined;
  if (isKnown || checked.reason === "amount_below_floor") return { simulation, findings: [] };
  const because = REASONS[checked.reason];
  return {
    simulation,
    findings: [finding("simulation_refused", where, { offer: number, because })],
  };
}

/** The body of a verify, as a stock client and a seller would make it. Undefined for other ways to pay. */
async function paymentFor(offer: CheckedOffer): Promise<object | undefined> {
  const {
    fields,
    extra,
    network,
    asset,
    isUsdc,
    payTo,
    amountAtomic,
    version: x402Version,
  } = offer;
  const { name, version } = extra;
  const isGateway = offer.findings.some(({ code }) => code === "gateway");
  const isPlain = findScheme(fields["scheme"], extra) === TOKEN_SCHEME && !isGateway;
  if (!network || !asset || !isUsdc || !payTo || amountAtomic === undefined || !isPlain)
    return undefined;
  if (typeof name !== "string" || typeof version !== "string") return undefined;
  // Facilitators settle version 1 only where the network has a name in it.
  if (x402Version === 1 && fields["network"] !== network.v1Name) return undefined;
  const account = privateKeyToAccount(generatePrivateKey());
  const authorization = TOKEN_SCHEME.authorize({
    network,
    from: account.address,
    payTo,
    amountAtomic,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000)) + FOR_SECONDS,
    nonce: bytesToHex(randomBytes(32)),
    extra,
  });
  // As a stock client: the domain is the seller's.
  const signature = await account.signTypedData({
    domain: { name, version, chainId: network.chainId, verifyingContract: asset },
    types: TRANSFER_TYPES,
    primaryType: "TransferWithAuthorization",
    message: { ...authorization },
  });
  const payload = TOKEN_SCHEME.proofPayload({ ...authorization, signature });
  const paymentPayload =
    x402Version === 2
      ? { x402Version, accepted: fields, payload }
      : { x402Version, scheme: fields["scheme"], network: fields["network"], payload };
  return { x402Version, paymentPayload, paymentRequirements: fields };
}
