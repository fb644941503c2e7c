/**
 * The owner's passkeys, as a wallet (EIP-1193) that signs typed data and nothing else. What the passkey signs is the digest of
 * the order that the page shows.
 */
import { hashTypedData, type TypedDataDefinition } from "viem";
import { type Assertion, signatureOfAssertion } from "../../../../packages/rules/src/assertions.ts";
import { api } from "../api.ts";
import { askPasskey } from "../webauthn.ts";
import type { Passkeys, Session } from "../wire.ts";
import type { Provider } from "./provider.ts";

const TIMEOUT_MS = 5 * 60_000;

/** `domain`: to which the passkeys belong. */
export const passkeyProvider = (
  { address }: Pick<Session, "address">,
  domain: string,
): Provider => ({
  async request({ method, params }) {
    switch (method) {
      case "eth_requestAccounts":
      case "eth_accounts":
        return [address];
      case "eth_chainId":
        return "0x0";
      case "eth_signTypedData_v4":
        return sign(JSON.parse(String((params as unknown[])[1])) as TypedDataDefinition, domain);
      default:
        throw Object.assign(new Error(`A passkey does not support ${method}.`), { code: 4200 });
    }
  },
});

async function sign(typedData: TypedDataDefinition, domain: string): Promise<string> {
  const { passkeys } = await api.get<Passkeys>("/api/passkeys");
  const active = passkeys.filter(({ status }) => status === "active");
  const { id, response } = await askPasskey({
    challenge: toBase64Url(hashTypedData(typedData)),
    rpId: domain,
    allowCredentials: active.map(({ id, transports }) => ({
      id,
      type: "public-key",
      transports: transports as AuthenticatorTransport[],
    })),
    userVerification: "required",
    timeout: TIMEOUT_MS,
  });
  const key = active.find((passkey) => passkey.id === id);
  const signature = key && signatureOfAssertion(key, response as unknown as Assertion);
  if (signature === undefined) throw new Error("This passkey is not one of your account.");
  return signature;
}

function toBase64Url(hex: string): string {
  const bytes = hex.slice(2).match(/../g) ?? [];
  const text = String.fromCharCode(...bytes.map((byte) => Number.parseInt(byte, 16)));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
