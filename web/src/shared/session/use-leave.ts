import { notifications } from "@mantine/notifications";
import { useCallback } from "react";
import { useNavigate } from "react-router";
import { forgetPush } from "../../lib/push.ts";
import { useSession } from "./session-context.ts";

/** Signs out and goes to the start page; where that fails, an error is shown and the page stays. */
export function useLeave(): () => Promise<void> {
  const { leave } = useSession();
  const navigate = useNavigate();
  return useCallback(async () => {
    try {
      await leave();
      // The server has removed this device with the session.
      await forgetPush().catch(() => undefined);
      await navigate("/");
    } catch (error) {
      notifications.show({
        color: "red",
        title: "You are still signed in",
        message: error instanceof Error ? error.message : "Signing out failed.",
      });
    }
  }, [leave, navigate]);
}
