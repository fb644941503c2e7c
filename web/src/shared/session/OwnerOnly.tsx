import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { useSession } from "./session-context.ts";

/** Whether the recovery wallet is signed in: the server refuses it everything that needs the owner's signature. */
export const useIsRecovery = (): boolean => (useSession().session?.second ?? null) !== null;

interface OwnerOnlyProps {
  children: ReactNode;
  /** In place of a whole screen or form, which would be empty. */
  isScreen?: boolean;
}

/** Actions that only the owner's wallet may take. They are not shown to the recovery wallet. */
export function OwnerOnly({ children, isScreen = false }: OwnerOnlyProps): ReactNode {
  const isRecovery = useIsRecovery();
  if (!isRecovery) return children;
  return isScreen ? <Note>Sign in with the owner&rsquo;s wallet to do this.</Note> : null;
}
