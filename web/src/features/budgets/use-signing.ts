import { useInfo } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import type { Signing } from "./api.ts";

export function useSigning(): Signing {
  const { address: owner } = useOwner();
  return { owner, network: useInfo()?.networks[0] };
}
