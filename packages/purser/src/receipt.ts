/** Checks a merchant's receipt: that the service signed exactly this, with an account that it settles payments with. */
import { readFileSync } from "node:fs";
import { isAddressEqual, recoverTypedDataAddress, type Address, type Hex } from "viem";

/** Fixed here, so that nothing is shown as signed that is not. */
const TYPES = {
  Receipt: [
    { name: "id", type: "string" },
    { name: "service", type: "string" },
    { name: "status", type: "string" },
    { name: "message", type: "string" },
    { name: "network", type: "string" },
    { name: "asset", type: "address" },
    { name: "amount", type: "string" },
    { name: "payer", type: "address" },
    { name: "payee", type: "address" },
    { name: "paidAt", type: "string" },
    { name: "transaction", type: "string" },
    { name: "block", type: "string" },
    { name: "blockHash", type: "string" },
    { name: "final", type: "bool" },
    { name: "refunded", type: "string" },
    { name: "refunds", type: "ReceiptRefund[]" },
    { name: "thirdParty", type: "ReceiptProduct" },
    { name: "asOf", type: "string" },
  ],
  ReceiptRefund: [
    { name: "amount", type: "string" },
    { name: "status", type: "string" },
    { name: "transaction", type: "string" },
    { name: "at", type: "string" },
  ],
  ReceiptProduct: [
    { name: "untrusted", type: "bool" },
    { name: "url", type: "string" },
    { name: "method", type: "string" },
  ],
};

type Members = Record<string, unknown>;

export interface CheckedReceipt {
  valid: boolean;
  /** What was checked, or what is wrong. */
  why: string;
  signer?: string;
  /** Only what is signed. */
  receipt?: Members;
}

const TIMEOUT_MS = 15_000;

/** Of its page's URL, or of a file that was saved there. */
export async function checkReceipt(source: string): Promise<CheckedReceipt> {
  const page = /^https?:\/\//i.test(source) ? new URL(source) : undefined;
  const signed = page ? await fetchJson(apiUrl(page)) : readJson(source);
  const { receipt, signature } = signed;
  if (!isMembers(receipt) || typeof signature !== "string")
    return { valid: false, why: "This is not a receipt." };
  const signer = await signerOf(receipt, signature);
  if (!signer) return { valid: false, why: "The signature is not one of a receipt like this." };
  const service = String(receipt["service"]);
  if (page && serviceOf(page) !== service)
    return { valid: false, why: `Another service signed it: ${JSON.stringify(service)}.`, signer };
  const supported = await fetchJson(new URL(`${service}/api/x402/supported`));
  const signers = isMembers(supported["signers"]) ? Object.values(supported["signers"]).flat() : [];
  if (!signers.some((known) => typeof known === "string" && isSame(known, signer)))
    return {
      valid: false,
      why: `It was changed, or ${service} does not sign with ${signer} any more.`,
      signer,
    };
  return {
    valid: true,
    why: `Signed by ${service}, which settles payments with this account.`,
    signer,
    receipt: onlySigned(receipt, "Receipt"),
  };
}

async function signerOf(receipt: Members, signature: string): Promise<Address | undefined> {
  const chainId = Number(/^eip155:(\d{1,15})$/.exec(String(receipt["network"]))?.[1]);
  try {
    return await recoverTypedDataAddress({
      domain: { name: "Purser receipt", version: "1", chainId },
      types: TYPES,
      primaryType: "Receipt",
      message: receipt,
      signature: signature as Hex,
    });
  } catch {
    return undefined;
  }
}

function onlySigned(members: Members, type: keyof typeof TYPES): Members {
  const part = (value: unknown, of: string): unknown => {
    const name = of.replace("[]", "") as keyof typeof TYPES;
    if (!Object.hasOwn(TYPES, name)) return value;
    return Array.isArray(value)
      ? value.map((each) => onlySigned(each as Members, name))
      : onlySigned(value as Members, name);
  };
  return Object.fromEntries(
    TYPES[type].map(({ name, type: of }) => [name, part(members[name], of)]),
  );
}

const isSame = (known: string, signer: Address): boolean =>
  /^0x[0-9a-fA-F]{40}$/.test(known) && isAddressEqual(known as Address, signer);

const PAGE = /\/(?:api\/)?receipts\/[^/]+\/?$/;
const serviceOf = ({ origin, pathname }: URL): string => `${origin}${pathname.replace(PAGE, "")}`;
const apiUrl = (page: URL): URL =>
  new URL(
    `${serviceOf(page)}/api/receipts/${page.pathname.split("/").findLast((part) => part !== "")}`,
  );

async function fetchJson(url: URL): Promise<Members> {
  const response = await fetch(url, { redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
  const body: unknown = await response.json();
  if (!response.ok || !isMembers(body)) throw new Error(`${url.href} answered ${response.status}`);
  return body;
}

function readJson(file: string): Members {
  const value: unknown = JSON.parse(readFileSync(file, "utf8"));
  return isMembers(value) ? value : {};
}

const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);
