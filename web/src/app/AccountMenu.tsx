import { Menu } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { UserIcon } from "../components/icons.tsx";
import { useSession } from "../features/session/session-context.ts";
import { shortAddress } from "../lib/address.ts";
import type { Session } from "../lib/wire.ts";
import styles from "./Shell.module.css";

export function AccountMenu({ session }: { session: Session }): ReactNode {
  const { leave } = useSession();
  const navigate = useNavigate();
  const onLeave = async (): Promise<void> => {
    try {
      await leave();
      await navigate("/");
    } catch (error) {
      notifications.show({
        color: "red",
        title: "You are still signed in",
        message: error instanceof Error ? error.message : "Signing out did not work.",
      });
    }
  };
  return (
    <Menu position="top-start" width={220} shadow="md">
      <Menu.Target>
        <button type="button" className={styles.account}>
          <UserIcon size={16} />
          <span className="sr-only">Account</span>
          {shortAddress(session.address)}
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item
          onClick={() => void navigator.clipboard.writeText(session.address).catch(() => {})}
        >
          Copy address
        </Menu.Item>
        <Menu.Item onClick={() => void navigate("/settings")}>Settings</Menu.Item>
        <Menu.Divider />
        <Menu.Item onClick={() => void onLeave()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
