from hgpo_gym.cli.main import main

if __name__ == "__main__":
    main()
