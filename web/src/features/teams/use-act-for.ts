import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "react-router";
import { toastFailure } from "../../components/toast.ts";
import { useSession } from "../../shared/session/session-context.ts";
import { actFor } from "./queries.ts";

interface Wanted {
  /** null: the person's own account. */
  owner: string | null;
  /** The page to show then. */
  to: string;
}

/** Acts for a team, or for one's own account again. The data of the account before are dropped with the session. */
export function useActFor() {
  const { onSignedIn } = useSession();
  const navigate = useNavigate();
  return useMutation({
    mutationFn: async ({ owner, to }: Wanted) => {
      await actFor(owner);
      // First, so that no screen asks for what belongs to the account before.
      await navigate(to);
      await onSignedIn();
    },
    onError: toastFailure("The account was not changed"),
  });
}
